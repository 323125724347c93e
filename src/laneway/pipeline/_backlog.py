"""Backlog: which keys have records waiting on the retry topics, so that later ones queue behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway.retry import origin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from laneway._record import Record

__all__ = ["Backlog"]


class Backlog:
    """How many records of each key wait on each step of a ladder in ``park`` mode.

    The records of a key on a higher step are older than those on a lower one, and all are older than those of the
    source topic. So a record goes behind the lowest step above its own that holds its key, and order is kept.

    Not thread-safe: it belongs to the owner of the desks that share it.
    """

    __slots__ = ("_oldest", "_steps")

    def __init__(self) -> None:
        self._steps: dict[Hashable, dict[int, int]] = {}
        self._oldest: dict[tuple[Hashable, int], int] = {}

    def __len__(self) -> int:
        """How many keys wait."""
        return len(self._steps)

    def joined(self, key: Hashable, step: int) -> None:
        """A copy of a record of *key* is on the topic of *step*, or on its way there."""
        steps = self._steps.setdefault(key, {})
        steps[step] = steps.get(step, 0) + 1

    def load(
        self,
        records: Iterable[Record[Any]],
        step: int,
        key_of: Callable[[Record[Any]], Hashable],
        source: str | None = None,
    ) -> None:
        """These records wait on the topic of *step*.

        Args:
            records: the copies.
            step: where they are.
            key_of: what orders them.
            source: the topic they came from at first; given after a crash, when records older than they are may be read
                again.
        """
        for record in records:
            key = key_of(record)
            if key is None:
                continue
            self.joined(key, step)
            origin = None if source is None else origin_of(record, source)
            if origin is not None:
                name = (key, origin.partition)
                self._oldest[name] = min(origin.offset, self._oldest.get(name, origin.offset))

    def precedes(self, key: Hashable, records: Sequence[Record[Any]]) -> int:
        """How many of a key's next records are older than all that wait.

        They had their end before those were copied, and are read again after a crash. To send them behind would let an
        old record have the last word; they run where they are.
        """
        if not self._oldest:
            return 0
        for count, record in enumerate(records):
            _, partition, offset = record.origin or (record.topic, record.partition, record.offset)
            if offset >= self._oldest.get((key, partition), -1):
                return count
        return len(records)

    def left(self, key: Hashable, step: int) -> None:
        """A record of *key* that waited on *step* has reached its end there, or did not get there."""
        steps = self._steps.get(key)
        if steps is None or step not in steps:
            return
        steps[step] -= 1
        if not steps[step]:
            del steps[step]
            if not steps:
                del self._steps[key]

    def behind(self, key: Hashable, step: int) -> int | None:
        """The step where a record of *key* that was read on *step* must wait; None when it may run."""
        steps = self._steps.get(key)
        return None if steps is None else min((found for found in steps if found > step), default=None)
