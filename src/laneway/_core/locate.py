"""Where a record is in a processor, and what it waits for, as plain values that may travel between processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from laneway._core.outbox import Trouble  # noqa: TC001 - a decoder looks it up

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from laneway._core.processor import Processor
    from laneway._core.step import Step
    from laneway._declare.record import Record

__all__ = ["BreakerStatus", "HandlerStatus", "LateTopic", "Location", "Spot", "locate", "status_of"]

Spot = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class Location(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where one record is, and what it waits for."""

    code: str
    """One of the codes of `Stall`."""
    has_key: bool = False
    """Whether the record was found, and so its key is known."""
    key: bytes | None = None
    attempt: int = 1
    seconds: float = 0.0
    """How long its call has been running."""
    count: int = 0
    """How many records are with the same lane."""
    due: float | None = None
    """Seconds until its next try."""
    error: str = ""
    """What its last call failed with."""
    head: Spot | None = None
    """The record that it waits behind."""
    inner: Location | None = None
    """Where that one is; or, of a handler that does not answer, where the record was seen."""
    end: int = 0
    """Up to where the table reaches that is in work."""


class BreakerStatus(msgspec.Struct, frozen=True):
    """A breaker that is open."""

    seconds: float
    failures: int
    error: str
    probe_in: float


class LateTopic(msgspec.Struct, frozen=True):
    """Messages that are not acknowledged for long."""

    topic: str
    words: str
    seconds: float


class HandlerStatus(msgspec.Struct, frozen=True):
    """One handler of one process at one moment."""

    handler: str
    is_batch: bool = False
    is_strict: bool = False
    is_ordered_by_partition: bool = False
    busy: int = 0
    lanes: int = 0
    breaker: BreakerStatus | None = None
    late: tuple[LateTopic, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    trouble: str = ""
    """Why the newest failed try to write failed, if something waits to be repeated."""


def status_of(processor: Processor, now: float, timeout: float) -> HandlerStatus:
    """How a handler is doing. It looks at single values only, so any thread may ask.

    Args:
        processor: of the handler.
        now: the time, by the processor's clock.
        timeout: seconds that a message may take.
    """
    spec, outbox, lanes = processor.spec, processor.outbox, processor.lanes
    troubles = outbox.troubles.now(now, is_pending=bool(outbox.pending), timeout=timeout) if outbox.troubles else ()
    return HandlerStatus(
        spec.name,
        spec.is_batch,
        spec.strict,
        spec.kept_order == "partition",
        lanes.busy,
        lanes.total,
        _breaker_of(processor, now),
        tuple(LateTopic(each.topic, each.words(now), now - each.since) for each in outbox.late),
        tuple(troubles),
        outbox.trouble or "",
    )


def _breaker_of(processor: Processor, now: float) -> BreakerStatus | None:
    state = None if processor.breaker is None else processor.breaker.state
    if state is None or not state.is_open:
        return None
    return BreakerStatus(now - state.opened_at, state.failures, state.error, state.probe_at - now)


def locate(
    processor: Processor, wanted: Collection[Spot], now: float, tables: Mapping[tuple[str, int], int] | None = None
) -> dict[Spot, Location]:
    """Where records are and what they wait for. It goes through all that the processor holds, which must not change.

    Args:
        processor: of their handler.
        wanted: which records.
        now: the time, by the processor's clock.
        tables: partition to the end of the table that a columnar handler is at work on.
    """
    found: dict[Spot, Location] = {}
    for began, turn in list(processor.begun.values()):
        records = [record for queue in turn for record in queue.work()]
        for record in records:
            if _spot(record) in wanted:
                found[_spot(record)] = _of(
                    record, "running", attempt=record.attempt, seconds=now - began, count=len(records)
                )
    left = set(wanted) - set(found)
    if left:
        for step in processor.steps:
            for record in step.scheduler.waiting():
                if _spot(record) in left:
                    found[_spot(record)] = _waiting(processor, step, record, now)
    for spot in set(wanted) - set(found):
        found[spot] = _elsewhere(processor, spot, tables or {})
    return found


def _spot(record: Record[Any]) -> Spot:
    return (record.topic, record.partition, record.offset)


def _of(record: Record[Any], code: str, **rest: Any) -> Location:
    return Location(code=code, has_key=True, key=record.key, **rest)


def _waiting(processor: Processor, step: Step, record: Record[Any], now: float) -> Location:
    """A record that no lane has taken."""
    scheduler = step.scheduler
    queue = scheduler.queue_of(processor.spec.lane_key(record))
    head = record if queue is None else queue.items[queue.start]
    if head is not record and (queue is None or queue.is_busy):
        spot = _spot(head)
        return _of(record, "behind", head=spot, inner=locate(processor, [spot], now)[spot])
    for until, late in scheduler.late():
        if any(other is record for other in late.items[late.start :]) and until > now:
            return _of(record, "next-try", attempt=record.attempt, due=until - now, error=late.error)
    return _of(record, _unstarted(processor))


def _unstarted(processor: Processor) -> str:
    """What a record waits for that could run if there were a lane for it."""
    if processor.breaker is not None and processor.breaker.is_open:
        return "breaker"
    if not processor.is_sure:
        return "group"
    is_free = processor.lanes.busy < processor.lanes.total and not (processor.spec.strict and processor.lanes.busy)
    return "batch" if is_free and processor.spec.is_batch else "lane"


def _elsewhere(processor: Processor, spot: Spot, tables: Mapping[tuple[str, int], int]) -> Location:
    """A record that is neither with a lane nor in a queue."""
    if not processor.step_of(spot[0]).ledger.has(*spot[1:]):
        is_held = processor.records or (processor.breaker is not None and processor.breaker.is_open)
        if is_held:
            return Location(code=_unstarted(processor))
        end = tables.get(spot[:2])
        return Location(code="untaken") if end is None else Location(code="running", end=end)
    for record in processor.acks.waiting():
        if _spot(record) == spot:
            return _of(record, "acknowledge")
    outbox = processor.outbox
    return Location(code="copy" if outbox.troubles or outbox.late or outbox.pending else "left")
