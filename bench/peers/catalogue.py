"""The workloads and the peers: who runs what, with how many records, and who cannot and why."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["KEYS", "LANEWAY", "PEERS", "WORKLOADS", "Peer", "Plan", "Workload"]

KEYS = 10_000


@dataclass(frozen=True, slots=True)
class Workload:
    """What is produced and what a call does. The figures are those of ``laneway bench``; W5 is W1 with Zipf keys."""

    name: str
    title: str
    records: int
    at_once: int
    wait: float = 0.0
    size: int = 1
    rate: int | None = None
    is_skewed: bool = False


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("w1", "20 ms handler, 300 at once", records=60_000, at_once=300, wait=0.02),
        Workload("w2", "no-op handler, called for each record", records=1_000_000, at_once=300),
        Workload(
            "w3", "batches of 50 that take 20 ms, 150 at once", records=1_000_000, at_once=150, wait=0.02, size=50
        ),
        Workload("w4", "latency at 2,000 records/s for 20 s", records=40_000, at_once=300, rate=2_000),
        Workload("w5", "W1 with skewed keys, Zipf(1.1)", records=20_000, at_once=300, wait=0.02, is_skewed=True),
    )
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How a peer runs a workload, where that differs from the workload: fewer records, or fewer calls at once."""

    records: int | None = None
    at_once: int | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """One competitor, or Laneway on one engine."""

    name: str
    title: str
    program: str
    variant: str = ""
    plans: dict[str, Plan | str] = field(default_factory=dict)
    """By workload; a text is the reason why the peer has no such mode."""

    @property
    def is_laneway(self) -> bool:
        """Whether it is no competitor."""
        return self.program == "laneway_run.py"


# Such a peer would need 20 minutes for W1; its rate is the same after a thirtieth of the records.
_SERIAL = Plan(records=2_000, at_once=1, remark="one call at a time")
_ONE_BATCH = Plan(records=100_000, at_once=1, remark="one batch at a time")
_ONE = Plan(at_once=1)
_NO_KEYS = "one call at a time: which keys are busy makes no difference, see W1"
_ONLY_COUNTS = "counts what consume() returned; no handler"

PEERS = {
    peer.name: peer
    for peer in (
        Peer("parallel-consumer", "parallel-consumer, KEY (Java)", "java"),
        Peer(
            "faststream-aiokafka",
            "FastStream, aiokafka",
            "faststream_run.py",
            "aiokafka",
            {"w2": Plan(200_000, 1), "w3": _ONE_BATCH, "w4": _ONE},
        ),
        Peer(
            "faststream-partition",
            "FastStream, aiokafka, by partition",
            "faststream_run.py",
            "aiokafka-partition",
            {
                "w1": Plan(10_000, 15, "one call per partition"),
                "w2": "a no-op gains nothing from workers, see FastStream, aiokafka",
                "w3": "max_workers has no effect on batches, see FastStream, aiokafka",
                "w4": "a no-op gains nothing from workers, see FastStream, aiokafka",
                "w5": Plan(at_once=15, remark="one call per partition"),
            },
        ),
        Peer(
            "faststream-confluent",
            "FastStream, confluent",
            "faststream_run.py",
            "confluent",
            {"w2": Plan(60_000, 1), "w3": _ONE_BATCH, "w4": _ONE},
        ),
        Peer(
            "quix",
            "Quix Streams",
            "quix_run.py",
            "",
            {"w1": _SERIAL, "w2": _ONE, "w3": "no batch handler", "w4": _ONE, "w5": _NO_KEYS},
        ),
        Peer(
            "aiokafka",
            "aiokafka, bare loop",
            "aiokafka_run.py",
            "",
            {"w1": _SERIAL, "w2": _ONE, "w3": _ONE_BATCH, "w4": _ONE, "w5": _NO_KEYS},
        ),
        Peer(
            "confluent",
            "confluent-kafka, bare loop",
            "confluent_run.py",
            "call",
            {"w1": _SERIAL, "w2": _ONE, "w3": _ONE_BATCH, "w4": _ONE, "w5": _NO_KEYS},
        ),
        Peer(
            "confluent-count",
            "confluent-kafka, consume() counted",
            "confluent_run.py",
            "count",
            {
                "w1": _ONLY_COUNTS,
                "w2": Plan(at_once=1, remark="no call for each record, order not seen"),
                "w3": _ONLY_COUNTS,
                "w4": _ONLY_COUNTS,
                "w5": _ONLY_COUNTS,
            },
        ),
    )
}

LANEWAY = {
    engine: Peer(f"laneway-{engine}", f"Laneway, {engine}", "laneway_run.py", engine) for engine in ("direct", "spark")
}
