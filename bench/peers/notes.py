"""Notes: every handler call, written by the peers themselves into one shared file, whatever language they are in.

A file has a slot for each record: how often it was called, and when its first call began and ended (CLOCK_MONOTONIC,
which all processes of a machine share, Java's too). A note costs under half a microsecond and survives a kill, so the
timed run and the checked run are one. Only the standard library is used: peers import it in their own environment.
"""

from __future__ import annotations

import mmap
import struct
from functools import cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HEADER", "PARTITIONS", "Notes", "counter", "writer"]

PARTITIONS = 15
HEADER = struct.Struct("<qqddd")  # records, slots per partition; records only counted, first and last time of counting


class Notes:
    """The file of one run."""

    def __init__(self, path: str | Path) -> None:
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.records, self.stride = HEADER.unpack_from(self._map)[:2]
        self._first, self._end, size = self.layout(self.stride)
        view = memoryview(self._map)
        self.calls = view[self._first : self._end]
        self.starts: Any = view[self._end : (self._end + size) // 2].cast("d")
        self.ends: Any = view[(self._end + size) // 2 : size].cast("d")

    @staticmethod
    def layout(stride: int) -> tuple[int, int, int]:
        """Where the call counts begin and end, and the size of the file: counts, starts, ends, one after the other."""
        first = 64
        end = first + (PARTITIONS * stride + 7) // 8 * 8
        return first, end, end + 2 * 8 * PARTITIONS * stride

    @classmethod
    def create(cls, path: str | Path, records: int, stride: int) -> Notes:
        """An empty file with *stride* slots for each partition. Its holes take no space until they are written."""
        with Path(path).open("wb") as file:
            file.write(HEADER.pack(records, stride, 0.0, 0.0, 0.0))
            file.truncate(cls.layout(stride)[2])
        return cls(path)

    @property
    def counted(self) -> tuple[int, float, float]:
        """For a peer that only counts: how many, and when counting began and ended."""
        number, first, last = HEADER.unpack_from(self._map)[2:]
        return int(number), first, last

    def count(self, number: int, first: float, last: float) -> None:
        """Write down how many records a peer has counted so far."""
        HEADER.pack_into(self._map, 0, self.records, self.stride, float(number), first, last)

    @property
    def noted(self) -> int:
        """How many records have been called; cheap enough to ask ten times a second."""
        calls = self._map[self._first : self._first + PARTITIONS * self.stride]
        return len(calls) - calls.count(0) if not self.counted[0] else self.counted[0]

    @property
    def is_complete(self) -> bool:
        """Every record has been called."""
        return self.noted >= self.records


@cache
def writer(path: str) -> Callable[..., None]:
    """Give ``note(partition, offset, start, end=now)``; one per process, so it can be asked for inside a handler."""
    notes = Notes(path)
    stride, calls, starts, ends = notes.stride, notes.calls, notes.starts, notes.ends

    def note(partition: int, offset: int, start: float, end: float | None = None) -> None:
        if offset >= stride:
            raise IndexError(f"offset {offset} of partition {partition} has no slot")
        place = partition * stride + offset
        before = calls[place]
        if not before:
            starts[place] = start
            ends[place] = monotonic() if end is None else end
        calls[place] = min(before + 1, 255)

    return note


@cache
def counter(path: str) -> Callable[[int, float, float], None]:
    """Give ``count(number, first, last)``."""
    return Notes(path).count


def spread(note: Callable[..., None], places: list[tuple[int, int]], start: float) -> None:
    """Note a batch. Its members run one after the other, as far as order goes: each gets an instant of its own."""
    step = (monotonic() - start) / len(places)
    for number, (partition, offset) in enumerate(places):
        note(partition, offset, start + number * step, start + (number + 1) * step)
