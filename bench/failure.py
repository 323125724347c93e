"""How much failures cost: throughput when 0, 1, 10 and 50 % of the records fail at their first call.

``python bench/failure.py [SHARE ...] [--handler sync|work|async] [--policies in-place,unordered,ordered] [--repeat N]``
measures each policy and share on a warm query and a warm broker, those of 0 and 1 % N times by turns, and
keeps the best pass of each in bench/results, with the figures of all; what is not measured now stays there. A failed
record succeeds at its second call: in place after 10 ms, or on a retry topic after a second.

The best, because a machine that is shared has slow spells of seconds to minutes (*tempo*, before and after each pass:
it varies by half), and a spell can only make a pass slower. The median of the turns is kept too, each compared with
the pass without failures of the same turn. Every second turn goes the other way round: neither kind always comes after
the other.

The broker is made warm with as many requests as it takes Java to compile what they run through: copies go out in few
and large ones, so a broker that has just started would be compiling in every pass with failures and in none without.

*records_per_second* counts until every record of the source has had its first outcome (handled, or safe on the retry
topic); *all_ended_per_second* counts until the last retry has succeeded, its delay included.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import statistics
import threading
import time
import uuid
from typing import Any

import figures
from machine import machine, tempo

from laneway import App, Retry, SparkEngine, Topic
from laneway._declare.state import State
from laneway._kafka import Admin, produce_many
from laneway.devkit.bench._usage import Usage
from laneway.devkit.bench._workloads import fill
from laneway.devkit.broker import FULL_SPEED, ephemeral
from laneway.observe import BatchHandled, Event, Tally
from laneway.settings import load

PARTITIONS, KEYS, LANES, WARM = 15, 10_000, 20, 100_000
REQUESTS = 60_000
WORK = bytes(20_000)  # to be hashed: some microseconds, in which other threads may have the interpreter
POLICIES = {
    "in-place": Retry(attempts=2, backoff="10ms"),
    "unordered": Retry.steps("1s", mode="unordered"),
    "ordered": Retry.steps("1s", mode="ordered"),
}


def app_of(topic: str, policy: str, share: int, handler: str) -> App:
    """An app in which so many of a hundred records fail at their first call."""
    app = App(f"bench-{topic}")

    def handle(record: Any) -> None:
        # On its own topic only: in ordered mode what queued behind another has its first call on the retry topic.
        if record.offset % 100 < share and record.attempt == 1 and record.origin is None:
            raise ConnectionError("planted")

    def handle_with_work(record: Any) -> None:
        hashlib.sha256(WORK)
        handle(record)

    async def handle_slowly(record: Any) -> None:
        await asyncio.sleep(0.005)
        handle(record)

    functions = {"sync": handle, "work": handle_with_work, "async": handle_slowly}
    app.handler(Topic(topic), lanes=LANES, retry=POLICIES[policy])(functions[handler])
    return app


class Pass:
    """One policy and share on one warm query."""

    def __init__(self, brokers: str, leave_out: set[int], policy: str, share: int, handler: str, records: int) -> None:
        self._brokers, self._policy, self._share, self._handler = brokers, policy, share, handler
        self._records = records
        self._topic = f"bench-{uuid.uuid4().hex[:8]}"
        self._changed = threading.Condition()
        self._total = Tally()
        self._sourced = self._ended = 0.0
        self._goal = WARM
        self._usage = Usage(leave_out)
        Admin({"bootstrap.servers": brokers}).create(self._topic, PARTITIONS)

    def run(self) -> dict[str, Any]:
        """Measure."""
        fill(self._brokers, self._topic, WARM, keys=KEYS).wait()
        engine = SparkEngine(load(overrides={"brokers": self._brokers}), listener=self)
        conductor = threading.Thread(target=self._conduct, args=(engine,), daemon=True)
        conductor.start()
        app_of(self._topic, self._policy, self._share, self._handler).run(engine)
        conductor.join()
        seconds, ended = self._sourced - self._resumed, self._ended - self._resumed
        return {
            "command": f"failure.py {self._share} --policies {self._policy} --handler {self._handler}",
            "policy": self._policy,
            "failing_percent": self._share,
            "handler": self._handler,
            "records": self._records,
            "seconds": round(seconds, 3),
            "records_per_second": round(self._records / seconds),
            "all_ended_per_second": round(self._records / ended),
            "cpu_seconds": round(self._usage.cpu_seconds, 2),
            "rss_mb": round(self._usage.rss_mb),
            "retried": self._total.retried,
            "deferred": self._total.deferred,
            "lost": WARM + self._records - self._total.handled,
        }

    def event(self, event: Event) -> None:
        """Count what a batch has done."""
        if isinstance(event, BatchHandled):
            self._batch_done(event.tally)

    def note(self, words: str) -> None:
        """Notes do not count."""

    def _batch_done(self, tally: Tally) -> None:
        with self._changed:
            self._total.add(tally)
            # Each deferred record is read once more: what the source has given is what was read without those.
            first = self._total.read - min(self._total.deferred, self._total.read - self._goal)
            if first >= self._goal and self._total.handled + self._total.deferred >= self._goal and not self._sourced:
                self._sourced = tally.last
            if self._total.handled >= self._goal:
                self._ended = tally.last
            self._changed.notify_all()

    def _conduct(self, engine: SparkEngine) -> None:
        try:
            self._wait()
            engine.pause()
            engine.life.wait_for(State.PAUSED, 10)
            fill(self._brokers, self._topic, self._records, keys=KEYS).wait()
            time.sleep(1)
            with self._changed:
                self._goal, self._sourced = WARM + self._records, 0.0
            self._resumed = time.time()
            with self._usage:
                engine.resume()
                self._wait()
        finally:
            engine.stop()

    def _wait(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._total.handled >= self._goal, 300), self._total


def warm(brokers: str) -> None:
    """Write a message a request until the broker has compiled all that a request runs through."""
    topic = f"warm-{uuid.uuid4().hex[:8]}"
    Admin({"bootstrap.servers": brokers}).create(topic, PARTITIONS)
    options = {"bootstrap.servers": brokers, "batch.num.messages": 1, "enable.idempotence": True}
    produce_many(options, topic, ((b"%d" % number, bytes(100)) for number in range(REQUESTS)))


def measured(
    place: tuple[str, set[int]], policy: str, shares: list[int], handler: str, records: int, repeat: int
) -> list[dict[str, Any]]:
    """What became of passes of each share, by turns."""
    passes: dict[int, list[dict[str, Any]]] = {share: [] for share in shares}
    for number in range(repeat):
        for share in shares if number % 2 == 0 else reversed(shares):
            if number and share > 1:
                continue  # such a share takes so long that one run is enough
            found = passes[share]
            before = {
                "measured": time.strftime("%Y-%m-%d %H:%M"),
                "load_before": round(os.getloadavg()[0], 2),
                "tempo": [tempo()],
            }
            found.append(Pass(*place, policy, share, handler, records).run() | before)
            found[-1]["tempo"].append(tempo())
            print(json.dumps(found[-1]), flush=True)
    return compared(passes)


def compared(passes: dict[int, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The best pass of each share, with what part of the first share's figure it keeps."""
    kept: list[dict[str, Any]] = []
    first = [figures["records_per_second"] for figures in next(iter(passes.values()))]
    for found in passes.values():
        best = max(found, key=lambda figures: figures["records_per_second"])
        speeds = [figures["records_per_second"] for figures in found]
        turns = [speed / before for speed, before in zip(speeds, first, strict=False)]
        kept.append(
            best
            | {
                "part_of_first": round(max(speeds) / max(first), 3),
                "median": round(statistics.median(speeds)),
                "part_of_first_median": round(statistics.median(turns), 3),
                "passes": [(figures["records_per_second"], *figures["tempo"]) for figures in found],
                "lost": max(abs(figures["lost"]) for figures in found),
            }
        )
        print("best:", json.dumps(kept[-1]), flush=True)
    return kept


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shares", nargs="*", type=int, default=[0, 1, 10, 50])
    parser.add_argument(
        "--handler", choices=["sync", "work", "async"], default=None, help="no-op, a hash of 20 kB, or 5 ms"
    )
    parser.add_argument("--policies", default="in-place,unordered", help=f"some of {','.join(POLICIES)}")
    parser.add_argument("--records", type=int, default=None)
    parser.add_argument("--repeat", type=int, default=5, help="passes of 0 and 1 %%, by turns; the best is kept")
    asked = parser.parse_args()
    facts = machine()
    path = figures.RESULTS / f"{time.strftime('%Y-%m-%d')}-failure.json"
    with ephemeral(java_options=FULL_SPEED) as broker:
        place = broker.bootstrap, set(broker.pids)
        warm(broker.bootstrap)
        for handler in [asked.handler] if asked.handler else ["async", "work", "sync"]:
            records = asked.records or (1_000_000 if handler == "sync" else 300_000)
            for policy in asked.policies.split(","):
                # Not kept: the first copies of all are written by a broker that has not compiled that path yet.
                Pass(*place, policy, max(asked.shares), "sync", 300_000).run()
                results = measured(place, policy, asked.shares, handler, records, asked.repeat)
                kept = figures.read(figures.newest("failure"))
                figures.write(path, figures.merged({"machine": facts, **kept}, results, facts))
    print(path)


if __name__ == "__main__":
    main()
