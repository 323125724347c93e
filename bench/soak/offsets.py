"""The group's offsets: watched while the soak runs, and read from the brokers' own log after it."""

from __future__ import annotations

import json
import struct
import threading
import time
from typing import TYPE_CHECKING

from laneway._kafka import AssignedConsumer, GroupOffsets, OffsetRange
from laneway.errors import LanewayError
from support.ownership import LoggedCommit

if TYPE_CHECKING:
    from pathlib import Path

    from laneway._kafka import Admin
    from soak.stage import Stage

__all__ = ["Clock", "Watch", "everything", "logged_commits"]

_LOG = "__consumer_offsets"
_LOOK = 2.0  # seconds between two looks
_READ_LIMIT = 300.0


class Clock:
    """Turns the brokers' times into those of `time.monotonic`, and knows how far off it may be."""

    def __init__(self) -> None:
        self._gaps: list[float] = []
        self.look()

    def look(self) -> None:
        """Compare the two clocks once more; the system may correct one of them at any time."""
        self._gaps.append(time.time() - time.monotonic())

    @property
    def doubt(self) -> float:
        """Seconds: brokers cut their times to a millisecond, and the clocks drift."""
        return 0.002 + max(self._gaps) - min(self._gaps)

    def moment(self, milliseconds: int) -> float:
        """A time of a broker."""
        return milliseconds / 1000 - (max(self._gaps) + min(self._gaps)) / 2


class Watch:
    """Looks at the group's offsets every two seconds, on a thread of its own."""

    def __init__(self, stage: Stage, partitions: int) -> None:
        self.lag: int | None = None
        """None while it cannot be known."""
        self.looked = 0.0
        """When that was."""
        self.longest: tuple[float, int] = (0.0, -1)
        """The longest time that a partition with lag had no progress, in seconds, and which it was."""
        self._stage = stage
        self._partitions = list(range(partitions))
        self._moved = {partition: (0, time.monotonic()) for partition in self._partitions}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        offsets = GroupOffsets(self._stage.options, self._stage.group)
        try:
            while not self._stop.wait(_LOOK):
                try:
                    began = time.monotonic()
                    committed = offsets.committed(self._stage.topic, self._partitions)
                    self._judge(began, committed, self._stage.ends())
                except LanewayError:  # a broker is away, or the group's coordinator moves
                    self.lag = None
        finally:
            offsets.close()

    def _judge(self, now: float, committed: dict[int, int], ends: dict[int, int]) -> None:
        for partition, end in ends.items():
            offset = committed.get(partition, 0)
            before, since = self._moved[partition]
            if offset != before or offset >= end:
                self._moved[partition] = (offset, now)
            self.longest = max(self.longest, (now - since, partition))
        self.looked = now
        self.lag = sum(end - committed.get(partition, 0) for partition, end in ends.items())


def everything(stage: Stage, topic: str) -> list[tuple[bytes | None, bytes | None, int, dict[str, bytes]]]:
    """Key, value, timestamp and headers of all records of a topic, by partition and offset."""
    admin: Admin = stage.admin
    ends = stage.ends(topic)
    starts = admin.starts(topic, list(ends))
    reader = AssignedConsumer(stage.options)
    reader.open([OffsetRange(topic, partition, starts[partition], end) for partition, end in ends.items()])
    found = []
    deadline = time.monotonic() + _READ_LIMIT
    while not reader.is_exhausted:
        assert time.monotonic() < deadline, f"{topic} could not be read in {_READ_LIMIT:.0f} s"
        found.extend(reader.fetch(10_000, 0.1))
    reader.close()
    found.sort(key=lambda record: (record.partition, record.offset))
    return [(record.key, record.raw, record.timestamp, {n: v or b"" for n, v in record.headers}) for record in found]


def logged_commits(stage: Stage, clock: Clock, path: Path) -> list[LoggedCommit]:
    """What the brokers wrote down of the group's commits: all of them, since their log is not compacted so soon.

    A readable copy goes to a file, because the log goes with the brokers.
    """
    commits = []
    with path.open("w", encoding="utf-8") as file:
        for key, value, timestamp, _headers in everything(stage, _LOG):
            place = _place(key)
            if value is not None and place is not None and place[:2] == (stage.group, stage.topic):
                offset, metadata = _said(value)
                commits.append(LoggedCommit(place[2], offset, clock.moment(timestamp)))
                line = {"time": commits[-1].time, "partition": place[2], "offset": offset, "metadata": metadata}
                file.write(json.dumps(line) + "\n")
    return commits


def _place(key: bytes | None) -> tuple[str, str, int] | None:
    """Group, topic and partition of a line of the log; None for a line of another kind."""
    if key is None or struct.unpack_from(">h", key)[0] not in (0, 1):
        return None
    words, position = [], 2
    for _ in range(2):
        (length,) = struct.unpack_from(">h", key, position)
        words.append(key[position + 2 : position + 2 + length].decode())
        position += 2 + length
    (partition,) = struct.unpack_from(">i", key, position)
    return words[0], words[1], partition


def _said(value: bytes) -> tuple[int, str]:
    """Offset and metadata of a line."""
    version, offset = struct.unpack_from(">hq", value)
    # Version 4 has the length in one byte, or two for long texts, and counts from one.
    if version == 3:
        (length,), begin = struct.unpack_from(">h", value, 14), 16
    elif value[14] < 128:
        length, begin = value[14] - 1, 15
    else:
        length, begin = (value[14] & 127 | value[15] << 7) - 1, 16
    return offset, value[begin : begin + length].decode(errors="replace")
