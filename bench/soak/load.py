"""Load: produces records at a steady rate and keeps count of those that the brokers acknowledged."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from confluent_kafka import Producer

__all__ = ["Load"]

_BEAT = 0.05  # seconds between two helpings: small against a second, large against the cost of waking up


class Load:
    """Produces on a thread of its own, idempotent and acknowledged by all replicas in sync.

    A cluster that does not take records for a while gets them later: the rate is kept over the whole time.

    Args:
        options: where the brokers are.
        topic: where to.
        rate: records per second.
        keys: how many different keys.
        seed: of their choice.
    """

    def __init__(self, options: dict[str, Any], topic: str, *, rate: int, keys: int, seed: int) -> None:
        self.produced = 0
        self.acknowledged: dict[int, int] = {}
        """How many records of each partition."""
        self.highest: dict[int, int] = {}
        """The highest acknowledged offset of each partition."""
        self.failed: list[str] = []
        self._topic, self._rate = topic, rate
        self._keys = [f"key-{number}".encode() for number in range(keys)]
        self._random = random.Random(seed)  # noqa: S311 - spread, not secrecy
        self._producer = Producer(
            {
                **options,
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 10,
                # Longer than any fault: a record that was given up might still arrive unnoticed.
                "delivery.timeout.ms": 600_000,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="load")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, patience: float = 120.0) -> None:
        """Produce no more, and wait until everything is acknowledged."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(patience)
        left = self._producer.flush(patience)
        if left:
            self.failed.append(f"{left} records without an answer after {patience:.0f} s")

    @property
    def total(self) -> int:
        """How many records were acknowledged."""
        return sum(self.acknowledged.values())

    def _produce(self) -> None:
        begun = time.monotonic()
        while not self._stop.wait(_BEAT):
            due = int((time.monotonic() - begun) * self._rate)
            while self.produced < due and self._produce_one():
                pass
            try:
                self._producer.poll(0)
            except SystemError as error:
                # A client of version 2.16.1 has once raised an error that is none, and the load was over. What it had
                # not answered by then was heard of later; if ever it is not, it counts as unacknowledged.
                print(f"          the client of the load stumbles: {error}", flush=True)

    def _produce_one(self) -> bool:
        try:
            key = self._random.choice(self._keys)
            self._producer.produce(self._topic, b"%d" % self.produced, key, on_delivery=self._delivered)
        except BufferError:
            return False
        self.produced += 1
        return True

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        partition = message.partition()
        self.acknowledged[partition] = self.acknowledged.get(partition, 0) + 1
        self.highest[partition] = max(message.offset(), self.highest.get(partition, -1))
