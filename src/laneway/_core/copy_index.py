"""CopyIndex: what a run that was killed had copied to a retry or error topic already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._core.headers import origin_of, read_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record

__all__ = ["CopyIndex"]


class CopyIndex:
    """Knows the records that are read a second time although their copy is safe; they are not to be run.

    A killed run has written copies of records whose offsets it did not get to commit. They are read again; to run them
    would copy them a second time. A copy is believed only when it holds the same key and value, so who may write
    to the topic cannot make a record vanish.

    Args:
        source: the topic that the records came from at first.
        by_place: know a copy by the place where its record was read, and not by where that came from at first.
        believes: leave records out at all.
    """

    def __init__(self, source: str, *, by_place: bool = False, believes: bool = True) -> None:
        self._source = source
        self._by_place = by_place
        self._believes = believes
        self._found: dict[tuple[int, int], int] = {}
        self.already_copied = 0

    @classmethod
    def of(cls, route: HandlerSpec) -> CopyIndex:
        """Nothing yet, for the records of a route.

        In a run over an error topic, a record and its copy are both on that topic and have the same origin; only the
        first of them is to be left out.
        """
        if route.rerun is not None:
            return cls(route.topic.name, by_place=True)
        # Were the newest record of a key left out, an older one that is read again would supersede its copy.
        return cls(route.source or route.topic.name, believes=route.kind != "unique")

    def __len__(self) -> int:
        """How many copies are known."""
        return len(self._found)

    def add(self, copies: Sequence[Record[Any]]) -> None:
        """These copies are safe."""
        for copy in copies if self._believes else ():
            place: tuple[str, int, int] | None = read_from(copy) if self._by_place else origin_of(copy, self._source)
            if place is not None and place[0] == self._source:
                self._found[place[1], place[2]] = hash((copy.key, copy.raw))

    def merge(self, other: CopyIndex) -> None:
        """The copies that *other* knows are safe too: of a partition that was just given to this process."""
        self._found.update(other._found)

    def fresh(self, records: list[Record[Any]]) -> list[Record[Any]]:
        """The records that have no copy."""
        if not self._found:
            return records
        fresh = [record for record in records if not self.has(record)]
        self.already_copied += len(records) - len(fresh)
        return fresh

    def has(self, record: Record[Any]) -> bool:
        """Whether a copy of a record is safe."""
        return self._found.get(self._place(record)) == hash((record.key, record.raw))

    def _place(self, record: Record[Any]) -> tuple[int, int]:
        if record.topic == self._source:
            return (record.partition, record.offset)
        origin = origin_of(record, self._source)
        return (-1, -1) if origin is None else (origin.partition, origin.offset)
