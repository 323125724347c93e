"""What handlers did, in which order, whichever process they ran in."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway.devkit import history

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from laneway import Record

__all__ = ["Call", "Recorder", "most_at_once", "overlaps"]


@dataclass(slots=True)
class Call:
    """One call of a handler."""

    began: int
    """Place of its beginning among all beginnings and ends of all processes."""
    ended: int
    start: float
    """Seconds of the clock that the handler saw: virtual on the fake."""
    end: float
    partitions: list[int]
    offsets: list[int]
    keys: list[bytes | None]
    attempts: list[int]
    pid: int
    thread: int
    error: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> bytes | None:
        return self.keys[0]

    @property
    def partition(self) -> int:
        return self.partitions[0]

    @property
    def offset(self) -> int:
        return self.offsets[0]

    @property
    def attempt(self) -> int:
        return self.attempts[0]


class Recorder:
    """Appends a line at the beginning and end of each call. Picklable: it is only a path."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    @contextmanager
    def call(self, *records: Record[Any], **facts: Any) -> Iterator[None]:
        """Record what happens inside the block as one call."""
        name = os.urandom(8).hex()
        self._write(
            call=name,
            partitions=[record.partition for record in records],
            offsets=[record.offset for record in records],
            keys=[None if record.key is None else record.key.hex() for record in records],
            attempts=[record.attempt for record in records],
            facts=facts,
        )
        error = None
        try:
            yield
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            self._write(end=name, error=error)

    def note(self, what: str) -> None:
        """Record that something happened."""
        self._write(note=what)

    def calls(self) -> list[Call]:
        """All calls that have begun, in that order; one that has not ended ends after everything else."""
        found: dict[str, Call] = {}
        for place, line in self._lines():
            if "call" in line:
                keys = [None if key is None else bytes.fromhex(key) for key in line["keys"]]
                found[line["call"]] = Call(
                    place, 1 << 60, line["time"], float("inf"), line["partitions"], line["offsets"], keys,
                    line["attempts"], line["pid"], line["thread"], None, line["facts"],
                )  # fmt: skip
            elif "end" in line:
                call = found[line["end"]]
                call.ended, call.end, call.error = place, line["time"], line["error"]
        return list(found.values())

    def notes(self) -> list[tuple[int, int, str]]:
        """Notes as (place, pid, text)."""
        return [(place, line["pid"], line["note"]) for place, line in self._lines() if "note" in line]

    def _lines(self) -> Iterable[tuple[int, dict[str, Any]]]:
        path = Path(self._path)
        return enumerate(json.loads(line) for line in path.read_text().splitlines()) if path.exists() else ()

    def _write(self, **line: Any) -> None:
        line |= {"time": _now(), "pid": os.getpid(), "thread": threading.get_ident()}
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, (json.dumps(line) + "\n").encode())
        finally:
            os.close(handle)


def most_at_once(calls: Iterable[Call]) -> int:
    """How many calls were under way at the same time, at most."""
    return history.most_at_once((call.began, call.ended) for call in calls)


def overlaps(calls: Iterable[Call], group: Callable[[Call], Iterable[Hashable]]) -> list[Hashable]:
    """The groups of which two calls were under way at once."""
    edges = [edge for call in calls for edge in ((call.began, 1, call), (call.ended, -1, call))]
    under_way: Counter[Hashable] = Counter()
    found = []
    for _place, change, call in sorted(edges, key=lambda edge: edge[0]):
        for name in set(group(call)):
            under_way[name] += change
            if under_way[name] > 1:
                found.append(name)
    return found


def _now() -> float:
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
