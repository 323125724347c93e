"""Recorder: one line per handler call, from any process of this machine."""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laneway._declare.record import Record

__all__ = ["Event", "Recorder", "append", "read_history"]

_LINE = struct.Struct("<qiqddi")
_files: dict[Path, int] = {}


@dataclass(frozen=True, slots=True)
class Event:
    """One handler call. Times are CLOCK_MONOTONIC, which all processes of a machine share."""

    key: int
    """A hash of topic and key; 0 when there is no key, and so no order."""
    partition: int
    offset: int
    start: float
    end: float
    attempt: int


@dataclass(frozen=True, slots=True)
class Recorder:
    """Writes events to a folder, one file per process, each event in one write so that a kill loses none.

    It holds only a path, so it travels with a handler to Spark's workers.
    """

    folder: str

    def write(self, record: Record[Any], start: float, end: float | None = None) -> None:
        """Take note of a call that began at *start* (`time.monotonic`) and ends now."""
        stamp = time.monotonic() if end is None else end
        # A record that came back from a retry topic is still the same record.
        topic, partition, offset = record.origin or (record.topic, record.partition, record.offset)
        line = _LINE.pack(hash_of(topic, record.key), partition, offset, start, stamp, record.attempt)
        append(Path(self.folder) / f"{os.getpid()}.history", line)


def append(path: Path, line: bytes) -> None:
    """Append a line in one write to a file that stays open until the process ends."""
    number = _files.get(path)
    if number is None:
        number = _files[path] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(number, line)


def hash_of(topic: str, key: bytes | None) -> int:
    """A stable 63-bit number for a key; 0 for none."""
    if key is None:
        return 0
    return int.from_bytes(blake2b(topic.encode() + b"\0" + key, digest_size=8).digest(), "little") >> 1 or 1


def read_history(folder: str | Path) -> Iterator[Event]:
    """Every event of a folder; a line cut short by a kill is left out."""
    for path in sorted(Path(folder).glob("*.history")):
        data = path.read_bytes()
        for line in _LINE.iter_unpack(data[: len(data) // _LINE.size * _LINE.size]):
            yield Event(*line)
