"""W1 to W6: their handlers, and their records, which a separate process produces so that it is not measured."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from laneway._declare.app import App
from laneway._declare.handler import Buffer
from laneway._declare.record import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from laneway._declare.record import Batch, Record
    from laneway.devkit.history import Recorder

__all__ = ["VALUE_SIZE", "WORKLOADS", "Workload", "app_of", "fill"]

PARTITIONS, KEYS = 15, 10_000
VALUE_SIZE = 200
_EXPONENT, _SEED = 1.1, 5


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload. *wait* is the duration of a call; *rate* is records per second for a latency workload."""

    name: str
    records: int
    lanes: int
    handler: str = "async"
    wait: float = 0.0
    size: int = 1
    rate: int | None = None
    is_skewed: bool = False
    """Few keys have most of the records (Zipf's law with exponent 1.1): the hottest key limits every engine."""

    @property
    def ideal(self) -> float | None:
        """Records per second if all usable lanes were always busy and a call took exactly its wait."""
        return self.reachable(self.wait) if self.wait else None

    def reachable(self, wait: float) -> float:
        """Records per second if a call took this many seconds."""
        if self.is_skewed:
            return self.records / (hottest(self.records) * wait)
        return PARTITIONS * self.lanes * self.size / wait

    def with_options(self, *, lanes: int | None, handler: str | None, records: int | None) -> Workload:
        """A variant."""
        return replace(
            self, lanes=lanes or self.lanes, handler=handler or self.handler, records=records or self.records
        )


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("w1", records=60_000, lanes=20, wait=0.02),
        Workload("w2", records=1_000_000, lanes=20, handler="sync"),
        Workload("w3", records=1_000_000, lanes=10, wait=0.02, size=50),
        Workload("w4", records=52_000, lanes=20, rate=2_000),
        Workload("w5", records=20_000, lanes=20, wait=0.02, is_skewed=True),
        Workload("w6", records=300_000, lanes=20, wait=0.02),
    )
}


def app_of(workload: Workload, topic: str, recorder: Recorder | None) -> App:
    """The app that runs a workload; a recorder writes every call to disk, which costs some microseconds."""
    app = App(f"bench-{topic}")
    source = Topic(topic)
    wait, buffer = workload.wait, Buffer(records=max(20_000, PARTITIONS * workload.lanes * workload.size))

    if workload.handler == "columnar":
        app.columnar_handler(source)(_columnar(recorder))
    elif workload.size > 1:
        app.batch_handler(source, size=workload.size, lanes=workload.lanes, buffer=buffer)(
            _batch(wait, recorder) if workload.handler == "sync" else _batch_async(wait, recorder)
        )
    else:
        handler = _single(wait, recorder) if workload.handler == "sync" else _single_async(wait, recorder)
        app.handler(source, lanes=workload.lanes, buffer=buffer)(handler)
    return app


def _single(wait: float, recorder: Recorder | None) -> Any:
    if recorder is None and not wait:

        def handle(record: Record[bytes]) -> None:
            pass

        return handle

    def handle_slowly(record: Record[bytes]) -> None:
        start = time.monotonic()
        if wait:
            time.sleep(wait)
        if recorder is not None:
            recorder.write(record, start)

    return handle_slowly


def _single_async(wait: float, recorder: Recorder | None) -> Any:
    async def handle(record: Record[bytes]) -> None:
        start = time.monotonic()
        if wait:
            await asyncio.sleep(wait)
        if recorder is not None:
            recorder.write(record, start)

    return handle


def _batch(wait: float, recorder: Recorder | None) -> Any:
    def handle(batch: Batch[bytes]) -> None:
        start = time.monotonic()
        time.sleep(wait)
        _write_all(recorder, batch, start)

    return handle


def _batch_async(wait: float, recorder: Recorder | None) -> Any:
    async def handle(batch: Batch[bytes]) -> None:
        start = time.monotonic()
        await asyncio.sleep(wait)
        _write_all(recorder, batch, start)

    return handle


def _write_all(recorder: Recorder | None, batch: Batch[bytes], start: float) -> None:
    """Give each member of a batch its own time span, because order counts members one after the other."""
    if recorder is None:
        return
    step = (time.monotonic() - start) / len(batch)
    for number, record in enumerate(batch):
        recorder.write(record, start + number * step, start + (number + 1) * step)


def _columnar(recorder: Recorder | None) -> Any:
    def handle(table: pa.Table) -> None:
        if recorder is None:
            return
        from laneway._declare.record import Record

        start = time.monotonic()
        rows = table.to_pylist()
        step = (time.monotonic() - start) / len(rows)
        for number, row in enumerate(rows):
            record = Record(row["topic"], row["partition"], row["offset"], 0, row["key"], row["value"], (), 0, None)
            recorder.write(record, start + number * step, start + (number + 1) * step)

    return handle


def _skewed(records: int, keys: int = 10_000) -> Iterator[int]:
    """The key number of each record: key 0 is the most frequent, the others follow Zipf's law."""
    rng = random.Random(_SEED)  # noqa: S311 - a workload, not a secret
    weights = list(accumulate((number + 1) ** -_EXPONENT for number in range(keys)))
    yield from rng.choices(range(keys), cum_weights=weights, k=records)


def hottest(records: int) -> int:
    """How many records the most frequent key has."""
    return Counter(_skewed(records)).most_common(1)[0][1]


def fill(
    brokers: str, topic: str, records: int, *, keys: int, rate: int | None = None, is_skewed: bool = False
) -> subprocess.Popen[bytes]:
    """Start a process that produces *records* records; it ends when all of them are acknowledged."""
    arguments = [brokers, topic, str(records), str(keys), str(rate or 0), str(int(is_skewed))]
    return subprocess.Popen([sys.executable, "-c", f"from {__name__} import produce; produce()", *arguments])


def produce() -> None:
    """Produce as the arguments of this process say."""
    from laneway._kafka import produce_many

    brokers, topic, records, keys, rate, is_skewed = sys.argv[1:]
    value = (b'{"payload": "' + b"x" * VALUE_SIZE)[: VALUE_SIZE - 2] + b'"}'
    numbers = _skewed(int(records), int(keys)) if int(is_skewed) else (n % int(keys) for n in range(int(records)))
    pairs = ((b"key-%d" % number, value) for number in numbers)
    produce_many({"bootstrap.servers": brokers, "acks": "all"}, topic, pairs, rate=int(rate) or None)
