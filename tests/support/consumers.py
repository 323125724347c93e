"""Consumers without a broker."""

from __future__ import annotations

from support.doors import Record

__all__ = ["FakeAssigned"]


class FakeAssigned:
    """Reads ranges as `AssignedConsumer` does, of logs that a test gives: partition to the offsets that hold a record.

    Where a log begins behind a range, what is missing is lost.
    """

    def __init__(self, logs, topic="orders.billing.retry.1"):
        self.logs, self.topic = logs, topic
        self.is_silent = False
        """Whether nothing arrives."""
        self.opened, self.is_closed = [], False
        self.is_exhausted, self.lost, self.gone = True, 0, []
        self._ranges = {}

    def open(self, ranges):
        self.opened.append([(part.partition, part.start, part.end) for part in ranges])
        self._ranges = {part.partition: (part.start, part.end) for part in ranges}
        self.is_exhausted, self.lost, self.gone = False, 0, []

    def close(self):
        self._ranges, self.is_exhausted = {}, True

    def end(self):
        self.is_closed = True

    def fetch(self, most, timeout):
        assert timeout == 0, "the loop waits for the group, not for retries"
        found = []
        for partition, (at, end) in () if self.is_silent else list(self._ranges.items()):
            log = self.logs[partition]
            start = max(at, log[0] if len(log) else at)
            if start > at:
                self.lost += start - at
                self.gone.append((partition, at, start))
            offsets = log[start:end] if isinstance(log, range) else [at for at in log if start <= at < end]
            offsets = offsets[: most - len(found)]
            found += [Record(self.topic, partition, at, 1, b"k", b"v", (), 2, b"v") for at in offsets]
            after = offsets[-1] + 1 if len(offsets) else end
            rest = [] if isinstance(log, range) else [at for at in log if after <= at < end]
            if after >= end or not (rest or isinstance(log, range)):
                del self._ranges[partition]
            else:
                self._ranges[partition] = (after, end)
        self.is_exhausted = not self._ranges
        return found
