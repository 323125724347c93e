"""What `laneway errors list` prints: rows, counts or JSON."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import typer

from laneway.admin import ErrorLog, Filter
from laneway.cli._errors_view import as_json, key_text, print_table, safe, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laneway.admin import ErrorTopic, OpenRange, ParkedRecord

__all__ = ["Kinds", "Newest", "Question", "list_topic", "row_of"]

T = TypeVar("T")

_SHOWN = 50
_MOST_KINDS = 1_000  # types counted one by one; a faulty producer could invent millions
_COLUMNS = ("place", "parked at", "handler", "origin", "key", "error", "message")


@dataclass(frozen=True, slots=True)
class Question:
    """What to list, and how."""

    target: str
    filter: Filter
    limit: int | None
    everything: bool = False
    """Also records that are no longer open."""
    by_type: bool = False
    as_lines: bool = False


class Newest(Generic[T]):
    """Keeps a rendering of the newest records only, and counts all; memory stays bounded."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[tuple[float, int, int], T]] = []
        self.count = 0

    def add(self, parked: ParkedRecord, make: Callable[[], T]) -> None:
        """Count a record; *make* renders it only if it is among the newest so far."""
        self.count += 1
        # A record without the time counts as old, or any producer could push the others out.
        rank = (-1.0 if parked.parked_at is None else parked.parked_at.timestamp(), *parked.place)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, (rank, make()))
        elif rank > self._heap[0][0]:
            heapq.heapreplace(self._heap, (rank, make()))

    def in_order(self) -> list[T]:
        """The renderings, the newest last."""
        return [made for _, made in sorted(self._heap, key=lambda item: item[0])]


@dataclass(slots=True)
class Kinds:
    """Counts records by type of error, with the oldest and newest of each."""

    counts: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, parked: ParkedRecord) -> None:
        """Count a record."""
        kind = parked.error_type or "unknown"
        if kind not in self.counts and len(self.counts) >= _MOST_KINDS:
            kind = "(others)"
        entry = self.counts.setdefault(kind, [0, None, None])
        entry[0] += 1
        if parked.parked_at is not None:
            entry[1] = min(entry[1] or parked.parked_at, parked.parked_at)
            entry[2] = max(entry[2] or parked.parked_at, parked.parked_at)

    def rows(self) -> Iterator[tuple[int, str, str, str]]:
        """Count, type, oldest and newest; the most frequent first."""
        for kind, (count, first, last) in sorted(self.counts.items(), key=lambda item: (-item[1][0], item[0])):
            yield count, kind, time_text(first), time_text(last)


def list_topic(topic: ErrorTopic, question: Question) -> None:
    """Print the selected records of one error topic."""
    with ErrorLog(topic) as log:
        extents = log.extents()
        if not extents:
            typer.echo(f"nothing is parked: there is no topic {topic.name} yet", err=question.as_lines)
        elif question.by_type:
            _print_kinds(topic, _selected(log, extents, question), question)
        elif question.as_lines:
            _print_lines(_selected(log, extents, question), question)
        else:
            _print_rows(topic, _selected(log, extents, question), question)


def _selected(log: ErrorLog, extents: dict[int, OpenRange], question: Question) -> Iterator[tuple[ParkedRecord, bool]]:
    """The selected records, and whether each is open."""
    for partition, extent in sorted(extents.items()):
        start = extent.start if question.everything else extent.open
        if start < extent.end:
            for parked in log.read(partition, start, extent.end):
                if question.filter.matches(parked):
                    yield parked, parked.place.offset >= extent.open


def _print_lines(meant: Iterator[tuple[ParkedRecord, bool]], question: Question) -> None:
    if question.limit is None:
        for parked, is_open in meant:
            typer.echo(as_json(parked, is_open=is_open))
        return
    newest = Newest[str](question.limit)
    for parked, is_open in meant:
        newest.add(parked, lambda parked=parked, is_open=is_open: as_json(parked, is_open=is_open))  # type: ignore[misc]
    for line in newest.in_order():
        typer.echo(line)


def _print_rows(topic: ErrorTopic, meant: Iterator[tuple[ParkedRecord, bool]], question: Question) -> None:
    newest = Newest[tuple[str, ...]](question.limit or _SHOWN)
    for parked, is_open in meant:
        state = ("open" if is_open else "done",) if question.everything else ()
        newest.add(parked, lambda parked=parked, state=state: (*state, *row_of(parked)))  # type: ignore[misc]
    rows = newest.in_order()
    if rows:
        print_table(("state", *_COLUMNS) if question.everything else _COLUMNS, rows)
    more = f", the newest {len(rows):,} of them shown; --limit {newest.count} shows all" * (newest.count > len(rows))
    _say_how_many(topic, newest.count, question, more)
    if rows:
        place = rows[-1][-len(_COLUMNS)]
        typer.echo(f"details of one: laneway errors show {question.target} {place}")


def row_of(parked: ParkedRecord) -> tuple[str, ...]:
    """The cells of a record in the list."""
    origin = parked.origin_topic or "unknown"
    if parked.origin_partition is not None and parked.origin_offset is not None:
        origin += f" {parked.origin_partition}:{parked.origin_offset}"
    return (
        str(parked.place),
        time_text(parked.parked_at),
        safe(parked.handler or "unknown", 40),
        safe(origin, 80),
        key_text(parked.key),
        safe(parked.error_type or "unknown", 60),
        safe(parked.error_message or "", 160),
    )


def _print_kinds(topic: ErrorTopic, meant: Iterator[tuple[ParkedRecord, bool]], question: Question) -> None:
    kinds = Kinds()
    for parked, _is_open in meant:
        kinds.add(parked)
    if question.as_lines:
        for count, kind, first, last in kinds.rows():
            line = {"topic": topic.name, "error_type": kind, "count": count, "oldest": first, "newest": last}
            typer.echo(json.dumps(line).replace("\x7f", "\\u007f"))
        return
    rows = [(f"{count:,}", safe(kind, 100), first, last) for count, kind, first, last in kinds.rows()]
    if rows:
        print_table(("count", "error", "oldest", "newest"), rows)
    _say_how_many(topic, sum(count for count, *_ in kinds.rows()), question)


def _say_how_many(topic: ErrorTopic, count: int, question: Question, more: str = "") -> None:
    kind = "" if question.everything else "open "
    if count:
        typer.echo(f"{topic.name}: {count:,} {kind}record{'' if count == 1 else 's'}{more}")
    else:
        meant = "" if question.filter == Filter() else " that match"
        hint = "" if question.everything else "; --all shows the others too"
        typer.echo(f"{topic.name}: no {kind}records{meant}{hint}")
