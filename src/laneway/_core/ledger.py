"""Ledger: which offsets are finished, and how far a partition may be committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Ledger"]


class Ledger:
    """Tracks the offsets of several partitions from seen to finished.

    The committable offset of a partition is its lowest unfinished one, or the one after the last seen. Only what was
    seen counts, so the gaps that compaction and transaction markers leave never hold it up.

    Not thread-safe: one thread owns it, or a lock of the owner guards it.

    Example:
        >>> ledger = Ledger()
        >>> ledger.see(0, [5, 6, 9])
        >>> ledger.finish(0, 6)
        >>> ledger.committable(0)
        5
    """

    __slots__ = ("_next", "_unfinished")

    def __init__(self) -> None:
        # A dict keeps insertion order, which is offset order, and adds or removes in O(1) without an object per offset.
        self._unfinished: dict[int, dict[int, None]] = {}
        self._next: dict[int, int] = {}

    def see(self, partition: int, offsets: Sequence[int]) -> None:
        """Add offsets that were read, in ascending order.

        Raises:
            ValueError: when they do not ascend, or do not lie beyond all seen before.
        """
        if not offsets:
            return
        if offsets[0] < self._next.get(partition, 0):
            raise ValueError(f"partition {partition}: offset {offsets[0]} was seen before")
        fresh = dict.fromkeys(offsets)
        # Sorting what is sorted is one pass in C; out of order, the first unfinished would not be the lowest.
        if len(fresh) != len(offsets) or sorted(offsets) != list(offsets):
            raise ValueError(f"partition {partition}: offsets do not ascend: {list(offsets)[:20]}")
        unfinished = self._unfinished.get(partition)
        if unfinished is None:
            unfinished = self._unfinished[partition] = {}
        unfinished.update(fresh)
        self._next[partition] = offsets[-1] + 1

    def finish(self, partition: int, offset: int) -> None:
        """Remove an offset whose outcome is durable.

        Raises:
            KeyError: when it was not seen, or is finished already; either is a bug of the caller.
        """
        del self._unfinished[partition][offset]

    def finish_all(self, places: Iterable[tuple[int, int]]) -> None:
        """Finish several (partition, offset) pairs."""
        unfinished = self._unfinished
        for partition, offset in places:
            del unfinished[partition][offset]

    def committable(self, partition: int) -> int | None:
        """The offset that may be committed: never above an unfinished one. None when nothing was seen."""
        unfinished = self._unfinished.get(partition)
        if unfinished:
            return next(iter(unfinished))
        return self._next.get(partition)

    def snapshot(self, partition: int) -> tuple[int, list[int]] | None:
        """The offset after the last seen one, and the unfinished ones before it; None when nothing was seen.

        Any thread may call it while the owner continues: each step is one atomic operation of the interpreter. The end
        is read first, so offsets seen meanwhile lie past it and are left out.
        """
        end = self._next.get(partition)
        if end is None:
            return None
        unfinished = self._unfinished.get(partition, {}).copy()
        if not unfinished or next(reversed(unfinished)) < end:
            return end, list(unfinished)
        return end, [offset for offset in unfinished if offset < end]

    def pass_to(self, partition: int, offset: int) -> None:
        """Mark the offsets before this one as read; those not seen need no work."""
        self._next[partition] = max(offset, self._next.get(partition, 0))

    def has(self, partition: int, offset: int) -> bool:
        """Whether an offset was seen and is unfinished."""
        return offset in self._unfinished.get(partition, ())

    def count(self, partition: int) -> int:
        """How many offsets of a partition are unfinished. Any thread may ask."""
        return len(self._unfinished.get(partition, ()))

    def unfinished(self, partition: int) -> Sequence[int]:
        """The unfinished offsets, ascending."""
        return tuple(self._unfinished.get(partition, ()))

    @property
    def outstanding(self) -> int:
        """How many offsets are unfinished over all partitions."""
        return sum(map(len, self._unfinished.values()))

    def forget(self, partition: int) -> None:
        """Forget a partition that is no longer owned."""
        self._unfinished.pop(partition, None)
        self._next.pop(partition, None)
