"""What producing costs beside bare loops over librdkafka, by turns, on one broker.

``python bench/produce.py [MESSAGES] [--turns 5]`` writes ``bench/results/<day>-produce.json``. Each way sends the same
messages of 200 bytes with a key, to six partitions, with idempotence and acks=all, and ends when all are acknowledged.
The bare ways differ in how they learn of errors:

- unchecked: no callback, so a message that fails goes unnoticed;
- errors only: one callback for all messages, and only for errors (``delivery.report.only.error``);
- one callback for all messages.

`produce_all` and `produce` are given messages that exist already, as the bare loops are given keys, values and headers.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import uuid
from statistics import median
from typing import TYPE_CHECKING, Any

import figures
from confluent_kafka import Producer as Bare
from machine import machine, tempo

from laneway import Topic
from laneway._kafka import Admin
from laneway.devkit.broker import FULL_SPEED, ephemeral
from laneway.producer import Producer
from laneway.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway import Message
    from laneway.settings import Settings

VALUE = b"x" * 200
HEADERS = [("trace", b"0af7651916cd43dd"), ("source", b"web"), ("version", b"3")]
KEYS = [b"customer-%d" % number for number in range(1_000)]
SHARE = 20
"""`produce`, one by one, is given a part of the messages where each waits for its answer."""


class Bench:
    """The ways to send the same messages."""

    def __init__(self, brokers: str, headers: list[tuple[str, bytes]], count: int) -> None:
        self.settings: Settings = load(overrides={"brokers": brokers})
        self.options = {**self.settings.cluster().producer_options(), "log_level": 2}
        self.headers, self.count = headers, count
        self.name = f"produce-{uuid.uuid4().hex[:8]}"
        self.admin = Admin({"bootstrap.servers": brokers})
        self.admin.create(self.name, 6)
        topic: Topic[bytes] = Topic(self.name)
        self.messages: list[Message[bytes]] = [
            topic.message(VALUE, key=KEYS[number % len(KEYS)], headers=headers) for number in range(count)
        ]

    def ways(self) -> dict[str, Callable[[], tuple[int, float, float]]]:
        """Each gives how many messages were sent, and the seconds of the clock and of the processor."""
        return {
            "bare, unchecked": lambda: self.bare(checked=False, only_error=True),
            "bare, errors only": lambda: self.bare(checked=True, only_error=True),
            "bare, one callback": lambda: self.bare(checked=True, only_error=False),
            "produce_all": self.bulk,
            "produce": self.single,
            "produce, each awaited": self.one_by_one,
        }

    def bare(self, *, checked: bool, only_error: bool) -> tuple[int, float, float]:
        """The tightest loop: positional arguments, and a poll now and then."""
        producer, errors = Bare({**self.options, "delivery.report.only.error": only_error}), []

        def answered(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append(error)

        headers, name, produce, keys = self.headers, self.name, producer.produce, KEYS
        callback = answered if checked else None
        producer.list_topics(name, timeout=10)
        clock, work = time.perf_counter(), time.process_time()
        for number in range(self.count):
            while True:
                try:
                    produce(name, VALUE, keys[number % 1_000], -1, callback, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number & 511 == 511:
                producer.poll(0)
        assert producer.flush(120) == 0
        assert not errors
        return self.count, time.perf_counter() - clock, time.process_time() - work

    def bulk(self) -> tuple[int, float, float]:
        with self.ready() as producer:
            clock, work = time.perf_counter(), time.process_time()
            assert producer.produce_all(self.messages).result(120) == self.count
            return self.count, time.perf_counter() - clock, time.process_time() - work

    def single(self) -> tuple[int, float, float]:
        with self.ready() as producer:
            clock, work = time.perf_counter(), time.process_time()
            for message in self.messages:
                producer.produce(message)
            assert producer.flush(120) == 0
            taken = self.count, time.perf_counter() - clock, time.process_time() - work
            assert producer.counts.acknowledged == self.count + 1  # the first message is not measured
            return taken

    def one_by_one(self) -> tuple[int, float, float]:
        count = self.count // SHARE // 10
        with self.ready() as producer:
            clock, work = time.perf_counter(), time.process_time()
            for message in self.messages[:count]:
                producer.produce(message).result(30)
            return count, time.perf_counter() - clock, time.process_time() - work

    def ready(self) -> Producer:
        producer = Producer(self.settings, topics=[Topic(self.name)])
        producer.produce(self.messages[0]).result(30)
        return producer


def main() -> None:
    """Measure all ways without and with headers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("messages", nargs="?", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    facts, entries = machine(), []
    with ephemeral(java_options=FULL_SPEED) as broker:
        Bench(broker.bootstrap, [], 300_000).bare(checked=False, only_error=True)  # the broker compiles its code
        for headers in ([], HEADERS):
            bench = Bench(broker.bootstrap, headers, asked.messages)
            passes: dict[str, list[tuple[float, float]]] = {name: [] for name in bench.ways()}
            speed = [tempo()]
            for _ in range(asked.turns):
                for name, way in bench.ways().items():
                    count, seconds, work = way()
                    passes[name].append((count / seconds, work / count * 1e6))
            speed.append(tempo())
            entries += [
                {
                    "command": f"python bench/produce.py: {name}, {len(headers)} headers",
                    "messages": asked.messages,
                    "messages_per_second": round(median(rate for rate, _ in found)),
                    "best": round(max(rate for rate, _ in found)),
                    "cpu_us_per_message": round(median(work for _, work in found), 2),
                    "passes": [round(rate) for rate, _ in found],
                    "tempo": speed,
                    "load_before": round(os.getloadavg()[0], 2),
                    "measured": time.strftime("%Y-%m-%d %H:%M"),
                }
                for name, found in passes.items()
            ]
            bench.admin.delete(bench.name)
    for entry in entries:
        print(json.dumps(entry))
    path = figures.RESULTS / f"{time.strftime('%Y-%m-%d')}-produce.json"
    kept = figures.read(figures.newest("produce"))
    figures.write(path, figures.merged({"machine": facts, **kept}, entries, facts))
    print(path)


if __name__ == "__main__":
    main()
