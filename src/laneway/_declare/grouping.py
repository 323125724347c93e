"""Handler kinds of one's own: what cuts the records that were gathered into the groups that are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from laneway._declare.ordering import by_field
from laneway.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from laneway._declare.record import Record

__all__ = ["GroupedBy", "Grouping"]


class Grouping(Protocol):
    """A handler kind: any object with this one method.

    It travels to other processes, and calls of several lanes use it at once, so it keeps nothing between two calls.

    Example::

        class Pairs:
            def split(self, records):
                return [records[at : at + 2] for at in range(0, len(records), 2)]


        @app.custom_handler(orders, kind=Pairs(), size=100)
        def handle(batch: Batch[Order]) -> None: ...
    """

    def split(self, records: Sequence[Record[Any]]) -> Iterable[Iterable[Record[Any]]]:
        """Cut records into the groups that the function is called with, one after the other.

        Each record is to be in exactly one group; a group without records is passed over. Values are decoded, and the
        records of one key stand in their order, which is kept as far as the groups keep it.

        Args:
            records: what was gathered, at least one.
        """
        ...


@dataclass(frozen=True, slots=True)
class GroupedBy:
    """The kind that groups records by a field of their JSON value, such as ``"customer.id"``.

    Groups come in the order of their first records, and keep the order of the records. Those without the field, or
    without a JSON value, are a group of their own. The value is read once more for this, as by `by_field`.

    Example:
        >>> from laneway import Topic
        >>> values = b'{"a": 1}', b'{"a": 2}', b'{"a": 1}'
        >>> groups = GroupedBy("a").split([Topic("t").record(value) for value in values])
        >>> [len(group) for group in groups]
        [2, 1]
    """

    path: str

    def __post_init__(self) -> None:
        """Refuse what names no field."""
        path: Any = self.path
        if not isinstance(path, str) or not all(path.split(".")):
            raise DeclarationError(f"GroupedBy({self.path!r}): name a field, such as GroupedBy('customer.id')")

    def split(self, records: Sequence[Record[Any]]) -> list[list[Record[Any]]]:
        """One group for each value of the field."""
        field = by_field(self.path)
        groups: dict[bytes | None, list[Record[Any]]] = {}
        for record in records:
            groups.setdefault(_value(field, record), []).append(record)
        return list(groups.values())


def _value(field: Callable[[Record[Any]], bytes | None], record: Record[Any]) -> bytes | None:
    try:
        return field(record)
    except (ValueError, RecursionError):  # not JSON, or no sane one: only a JSON codec would have kept it out
        return None
