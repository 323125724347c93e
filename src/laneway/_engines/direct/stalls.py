"""Why a record is not finished: looked up among the turns, queues and copies of its station."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from laneway._declare.health import lasting
from laneway.events import BreakerOpened, CopyFailed, OffsetsCommitted, RecordDeferred, RecordParked, RecordRetried

if TYPE_CHECKING:
    from collections.abc import Collection

    from laneway._core.step import Step
    from laneway._declare.record import Record
    from laneway._kafka import Place
    from laneway._runtime.handler_worker import HandlerWorker
    from laneway.events import Event

__all__ = ["Cause", "Heard", "breaker_words", "explain"]

_MOST = 4_096  # records whose last failure is kept in mind
_CALM = 6.0  # seconds; what cannot be written is tried again after at most five

Spot = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class Cause(NamedTuple):
    """Why one record is not finished."""

    code: str
    words: str
    record: Record[Any] | None = None


class _Trouble:
    """A topic that cannot be written to."""

    __slots__ = ("error", "landed", "last", "since", "tries")

    def __init__(self, since: float) -> None:
        self.since = self.last = since
        self.landed = 0.0
        self.error, self.tries = "", 0


class Heard:
    """What events have told. Any thread may tell it one; each is one operation on a dict."""

    def __init__(self) -> None:
        self._retries: dict[tuple[str, int, int], tuple[str, float]] = {}
        self._order: deque[tuple[str, int, int]] = deque()
        self._troubles: dict[tuple[str, str], _Trouble] = {}
        self._breakers: dict[str, str] = {}
        self.committed: dict[Place, int] = {}
        """What the brokers have said that they have."""

    def hear(self, event: Event) -> None:
        """Keep what an event tells of things that may hold a record up."""
        now = time.monotonic()
        if isinstance(event, RecordRetried):
            self._retried(event, now)
        elif isinstance(event, CopyFailed):
            trouble = self._troubles.setdefault((event.handler, event.topic), _Trouble(now))
            trouble.last, trouble.error, trouble.tries = now, event.error, max(trouble.tries, event.tries)
        elif isinstance(event, RecordParked):
            self._landed(event.handler, event.error_topic, now)
        elif isinstance(event, RecordDeferred):
            for handler, topic in list(self._troubles) if self._troubles else ():
                if handler == event.handler and topic.endswith(str(event.step)):
                    self._landed(handler, topic, now)
        elif isinstance(event, BreakerOpened):
            self._breakers[event.handler] = event.error
        elif isinstance(event, OffsetsCommitted):
            for partition, offset in event.offsets:
                self.committed[event.topic, partition] = offset

    def next_try(self, record: Record[Any]) -> tuple[str, float] | None:
        """What a record's last call failed with, and when the next one is due."""
        return self._retries.get((record.topic, record.partition, record.offset))

    def breaker(self, handler: str) -> str:
        """What the call failed with that opened a handler's breaker."""
        return self._breakers.get(handler, "")

    def troubles(self, handler: str, *, is_pending: bool, timeout: float) -> list[tuple[str, str, float]]:
        """Topics to which something of a handler cannot be written: name, why, and since when.

        A try may be under way that nobody has heard of yet, so one that failed counts until a later one has landed.

        Args:
            handler: whose.
            is_pending: whether anything of it waits to be acknowledged.
            timeout: seconds that a try may take.
        """
        now, found = time.monotonic(), []
        for (name, topic), trouble in list(self._troubles.items()):
            if name != handler:
                continue
            quiet = now - trouble.last
            is_over = (trouble.landed > trouble.last and quiet > _CALM) or quiet > timeout + 2 * _CALM
            if not is_pending or is_over:
                del self._troubles[name, topic]
            else:
                again = f", {trouble.tries} times so far" if trouble.tries > 1 else ""
                found.append((topic, f"cannot write to {topic}: {trouble.error}{again}", trouble.since))
        return found

    def _landed(self, handler: str, topic: str, now: float) -> None:
        trouble = self._troubles.get((handler, topic))
        if trouble is not None:
            trouble.landed = now

    def _retried(self, event: RecordRetried, now: float) -> None:
        name = (event.topic, event.partition, event.offset)
        if name not in self._retries:
            self._order.append(name)
            if len(self._order) > _MOST:
                self._retries.pop(self._order.popleft(), None)
        self._retries[name] = (event.error, now + event.pause.total_seconds())


def explain(station: HandlerWorker, wanted: Collection[Spot], heard: Heard, timeout: float) -> dict[Spot, Cause]:
    """Why records are not finished. It goes through what the station holds: only by way of `HandlerWorker.look`.

    Args:
        station: where they are.
        wanted: which.
        heard: what events have told.
        timeout: seconds that a message may take.
    """
    found: dict[Spot, Cause] = {}
    now, processor = time.monotonic(), station.processor
    for began, turn in list(processor.begun.values()):
        records = [record for queue in turn for record in queue.work()]
        for record in records:
            if _spot(record) in wanted:
                found[_spot(record)] = _running(station, record, len(records), now - began)
    left = set(wanted) - set(found)
    if left:
        for step in processor.steps:
            for record in step.scheduler.waiting():
                if _spot(record) in left:
                    found[_spot(record)] = _waiting(station, step, record, heard, timeout, now)
    for spot in set(wanted) - set(found):
        found[spot] = _elsewhere(station, spot, heard, timeout)
    return found


def _spot(record: Record[Any]) -> Spot:
    return (record.topic, record.partition, record.offset)


def _running(station: HandlerWorker, record: Record[Any], count: int, seconds: float) -> Cause:
    route = station.spec
    what = f"handler {route.name!r} has been running for {lasting(seconds)}"
    if count > 1:
        what += f" with a batch of {count:,}" if route.is_batch else f" with {count:,} records, of which it is one"
    again = f", attempt {record.attempt}" if record.attempt > 1 else ""
    return Cause("running", what + again, record)


def _waiting(
    station: HandlerWorker, step: Step, record: Record[Any], heard: Heard, timeout: float, now: float
) -> Cause:
    """A record that no lane has taken."""
    scheduler, route = step.scheduler, station.spec
    queue = scheduler.queue_of(route.lane_key(record))
    head = record if queue is None else queue.items[queue.start]
    if head is not record and (queue is None or queue.is_busy):
        what = "partition" if route.kept_order == "partition" else "key"
        place = f"{head.topic}[{head.partition}]@{head.offset}"
        cause = explain(station, [_spot(head)], heard, timeout)[_spot(head)]
        return Cause("behind", f"it waits behind {place} of its {what}: {cause.words}", record)
    if any(other is record for other in scheduler.postponed(now)):
        return Cause("next-try", _next_try(record, heard, now), record)
    return _unstarted(station, heard)._replace(record=record)


def _next_try(record: Record[Any], heard: Heard, now: float) -> str:
    known = heard.next_try(record)
    if known is None:
        return f"it waits for its next try, attempt {record.attempt}"
    error, due = known
    return f"it waits for its next try, attempt {record.attempt}, due in {lasting(due - now)}, after {error}"


def _unstarted(station: HandlerWorker, heard: Heard) -> Cause:
    """A record that could run if there were a lane for it."""
    processor, route = station.processor, station.spec
    if processor.breaker is not None and processor.breaker.is_open:
        return Cause("breaker", breaker_words(station, heard))
    if not processor.is_sure:
        words = (
            "this process did not poll for too long, and waits for its group to say which partitions are still its own"
        )
        return Cause("group", words)
    busy, lanes = processor.lanes.busy, processor.lanes.total
    if busy >= lanes:
        return Cause("lane", f"it waits for a free lane of handler {route.name!r}, which are all busy ({lanes:,})")
    if route.strict and busy:
        return Cause("lane", f"it waits for a free lane of its partition; handler {route.name!r} has strict lanes")
    if route.is_batch:
        return Cause("batch", f"it waits for the batch of handler {route.name!r} to be full")
    return Cause("lane", f"it waits for a lane of handler {route.name!r}, of which {busy:,} of {lanes:,} are busy")


def _elsewhere(station: HandlerWorker, spot: Spot, heard: Heard, timeout: float) -> Cause:
    """A record that is neither with a lane nor in a queue."""
    processor, route = station.processor, station.spec
    if not processor.step_of(spot[0]).ledger.has(*spot[1:]):
        is_held = processor.records or (processor.breaker is not None and processor.breaker.is_open)
        return _unstarted(station, heard) if is_held else _unread(station, spot[:2])
    for record in processor.acks.waiting():
        if _spot(record) == spot:
            return Cause("acknowledge", f"handler {route.name!r} has returned and not acknowledged it yet", record)
    troubles = heard.troubles(route.name, is_pending=bool(processor.outbox.pending), timeout=timeout)
    if troubles:
        return Cause("copy", "its copy or message is not safe yet: " + "; ".join(words for _, words, _ in troubles))
    late = "; ".join([each.words(time.monotonic()) for each in processor.outbox.late])
    if late:
        return Cause("copy", f"its copy or message is not safe yet: {late}")
    if processor.outbox.pending:
        return Cause(
            "copy", processor.outbox.trouble or "its copy or message has not been acknowledged by the brokers yet"
        )
    return Cause("left", "it is left for the next start, because this one is ending")


def _unread(station: HandlerWorker, place: Place) -> Cause:
    end = station.intake.table.get(place)
    if end is not None:
        return Cause("running", f"handler {station.spec.name!r} is at work on a table that reaches to offset {end - 1}")
    return Cause("lane", f"handler {station.spec.name!r} has not taken it up yet")


def breaker_words(station: HandlerWorker, heard: Heard) -> str:
    """That a handler's breaker is open, and what is known of it."""
    state, now = station.breaker, time.monotonic()
    error = heard.breaker(station.spec.name)
    probe = f"the next probe is due in {lasting(state.probe_at - now)}" if state.probe_at > now else "a probe is due"
    return (
        f"the breaker of handler {station.spec.name!r} is open for {lasting(now - state.opened_at)} after "
        f"{state.failures} failures in a row{f', first with {error}' if error else ''}; {probe}"
    )
