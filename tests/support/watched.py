"""A cluster that stands where a test puts it, to judge health by."""

from __future__ import annotations

from datetime import timedelta

from laneway._core.locate import HandlerStatus, Location
from laneway._runtime.broker_monitor import BrokerView
from laneway._runtime.health.snapshot import Located, MemberStatus, PartitionStatus, Snapshot

__all__ = ["Seen"]


class Seen:
    """What a test says is seen. A partition is `low`; it is begun when `delivered` lies past that."""

    def __init__(self) -> None:
        self.low: dict[tuple[str, int], int] = {}
        self.delivered: dict[tuple[str, int], int] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        self.waits: dict[tuple[str, int], str] = {}
        self.full: set[tuple[str, int]] = set()
        self.ends: dict[tuple[str, int], int] = {}
        self.brokers = BrokerView()
        self.delays: dict[str, float] = {}
        self.handler = HandlerStatus("charge", lanes=4)
        self.location = Location(code="running", has_key=True, key=b"k", seconds=7.0)
        self.findings = ()
        self.has_joined, self.silent = True, 0.0
        self.counts = False
        self.refreshed = 0

    def refresh(self):
        self.refreshed += 1

    def look(self):
        partitions = {
            place: PartitionStatus(
                at,
                self.delivered.get(place, at),
                self.committed.get(place, at),
                self.epochs.get(place, 0),
                self.waits.get(place, ""),
                place in self.full,
            )
            for place, at in self.low.items()
        }
        member = MemberStatus(self.has_joined, False, self.silent, 100.0, timedelta(seconds=45))
        view = BrokerView(self.ends, self.brokers.brokers, self.brokers.code, self.brokers.text, self.brokers.since)
        return Snapshot(
            "broker:9092", view, partitions, [self.handler], self.delays, member, list(self.low), self.findings
        )

    def locate(self, spots):
        return [Located(spot, self.handler, self.location) for spot in spots]

    def count_brokers(self):
        self.counts = True
