"""What follows for records that were not handled, and for messages that were refused: pure functions.

Records that were handled, skipped or have led to messages need no outcome of their own: a report lists them in bulk.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from laneway._core.messages import ErrorCopy, ReplyMessage
from laneway._declare.breaker import is_failure
from laneway._declare.retry import MOST_STEPS
from laneway._declare.units import as_duration
from laneway.errors import (
    MessageTooLargeError,
    RetryAfter,
    TimestampRefusedError,
    Unacknowledged,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._core.acks import Ack
    from laneway._core.headers import Reduction
    from laneway._core.messages import PendingMessage
    from laneway._core.scheduler import KeyQueue
    from laneway._core.turn import TurnReport
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway._declare.retry import Retry

__all__ = [
    "ERROR_TOPIC",
    "AwaitAck",
    "Copy",
    "Decision",
    "Defer",
    "Fate",
    "KeyDecision",
    "Outcome",
    "Park",
    "RetryAt",
    "TryAgain",
    "Verdict",
    "asked_delay",
    "decide",
    "follow",
    "is_hopeless",
    "judge",
    "resolve",
]

_SHORTEST = timedelta(milliseconds=10)  # a shorter wait for a service would keep a core busy
_MOST_ASKED = 10  # retries for `RetryAfter` with a policy without retries, so that no record is retried forever
ERROR_TOPIC = 0
"""In place of the step of a copy: it goes to the error topic."""


class RetryAt(NamedTuple):
    """The record stays at the head of its key and is called again at a time."""

    record: Record[Any]
    at: float
    pause: float
    error: Exception
    counts: bool = True
    """Whether the call used an attempt."""


class Copy(NamedTuple):
    """A copy goes to a retry topic or the error topic; the record is finished when it is acknowledged."""

    record: Record[Any]
    step: int
    """Of the retry topic; `ERROR_TOPIC` for the other one."""
    error: Exception | None
    """None: it did not fail, it only waits behind its key."""
    holds_key: bool = True
    """Whether the key waits for the acknowledgement."""
    superseded: Sequence[Record[Any]] = ()
    """Older records of the key, finished with it."""


class AwaitAck(NamedTuple):
    """The handler has left the record to its `Ack`; the key waits."""

    record: Record[Any]
    ack: Ack


Outcome = RetryAt | Copy | AwaitAck


_first = itemgetter(0)


class KeyDecision(NamedTuple):
    """What follows for one key of a turn."""

    at: int
    """Index of its queue in the turn."""
    over: int | list[Record[Any]]
    """How many of the taken records leave the queue; for a batch, which of them stay."""
    outcomes: list[Outcome]


class Decision(NamedTuple):
    """What follows for a turn. Keys that are not named advance as far as the report says, and continue."""

    keys: list[KeyDecision]
    given_back: int
    """Failures that do not count, because of an outage: their records wait as if they had not been called."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The record is retried in place after a pause."""

    pause: timedelta
    counts: bool = True
    """Whether the call uses an attempt."""


@dataclass(frozen=True, slots=True)
class Defer:
    """A copy of the record waits on the retry topic of a step."""

    step: int


@dataclass(frozen=True, slots=True)
class Park:
    """The record is parked on the error topic."""


Verdict = TryAgain | Defer | Park
_PARK, _DEFERS = Park(), tuple(Defer(step) for step in range(1, MOST_STEPS + 1))


def judge(  # noqa: PLR0911 - a table
    error: BaseException, attempt: int, retry: Retry, step: int = 0
) -> Verdict:
    """Decide what happens to a failed record. The only place that decides it.

    A rejected or undecodable record, or an error that is not retriable, is parked at once: a retry cannot help.

    While a schema registry or a dedup store does not answer, a record waits without using an attempt, however long that
    takes.

    `RetryAfter` waits exactly its delay in place, and at least its delay on the ladder: on the next step whose delay is
    long enough. If no such step is left, the record waits in place, and that wait replaces the next step. A policy
    without retries allows `_MOST_ASKED` of them.

    Args:
        error: the exception of the handler.
        attempt: the record's calls on this step so far.
        retry: the handler's policy.
        step: the step on which it failed; 0 is the source topic.
    """
    if isinstance(error, UnavailableError):
        return TryAgain(max(_SHORTEST, timedelta(seconds=error.retry_after)), counts=False)
    if not retry.is_retriable(error):
        return _PARK
    asked = asked_delay(error)
    if attempt < retry.in_place:
        step_calls = attempt % retry.attempts
        usual = retry.pause(step_calls) if step_calls else retry.delays[attempt // retry.attempts - 1]
        return TryAgain(usual if asked is None else asked)
    if isinstance(error, RetryAfter) and retry.in_place == 1 and attempt <= _MOST_ASKED and not retry.hops:
        return TryAgain(retry.pause(attempt) if asked is None else asked)
    following = step + 1 + attempt - retry.in_place  # a wait in place on the ladder counts as a step
    if following > retry.hops:
        return _PARK
    if asked is None:
        return _DEFERS[following - 1]
    found = next((at for at in range(following, retry.hops + 1) if retry.delays[at - 1] >= asked), None)
    return TryAgain(asked) if found is None else _DEFERS[found - 1]


def asked_delay(error: BaseException) -> timedelta | None:
    """The delay that the handler requested, if any."""
    delay = error.delay if isinstance(error, RetryAfter) else None
    if delay is None:
        return None
    try:
        asked = timedelta(seconds=delay) if isinstance(delay, (int, float)) else as_duration(delay)
    except (ValueError, OverflowError):
        return None  # an invalid delay must not end the run: the record would fail the same way after each restart
    return max(asked, timedelta(0))


def decide(
    turn: list[KeyQueue[Record[Any]]], report: TurnReport, spec: HandlerSpec, *, now: float, is_outage: bool
) -> Decision:
    """What follows for the keys of a turn in which something failed.

    Args:
        turn: the queues.
        report: what happened.
        spec: the handler, on the step where the records were read.
        now: the time, by the clock of the retries.
        is_outage: the breaker has opened or stays open: failures of the handler are no fault of their records.
    """
    if not report.failures:
        return _decide_batch(turn, report, spec, now, is_outage=is_outage)
    keys, given_back = [], 0
    for index, (record, error) in sorted(report.failures.items(), key=_first):
        if is_outage and is_failure(error, spec.retry):
            given_back += 1
            continue
        done = report.done[index] if index < len(report.done) else 0
        outcome = follow(record, error, spec, now=now)
        keys.append(KeyDecision(index, done + isinstance(outcome, Copy), [outcome]))
    return Decision(keys, given_back)


def follow(
    record: Record[Any], error: Exception, spec: HandlerSpec, *, now: float, has_key: bool = True
) -> AwaitAck | Copy | RetryAt:
    """What follows for one record that failed.

    Args:
        record: the record.
        error: why.
        spec: the handler, on the step where it was read.
        now: the time.
        has_key: whether its key waits for it; if not, it cannot be tried again in its place.
    """
    if isinstance(error, Unacknowledged):
        return AwaitAck(record, error.ack)  # type: ignore[arg-type]  # errors know no rooms above them
    verdict = judge(error, record.attempt - record.before, spec.retry, spec.step)
    if isinstance(verdict, TryAgain) and has_key:
        return _retry(record, error, verdict, now)
    step = verdict.step if isinstance(verdict, Defer) else ERROR_TOPIC
    # Where later records of a key overtake those on a retry topic, nothing is won by a key that waits for the copy.
    return Copy(record, step, error, holds_key=has_key and (step == ERROR_TOPIC or spec.parks_behind))


def _retry(record: Record[Any], error: Exception, verdict: TryAgain, now: float) -> RetryAt:
    pause = verdict.pause.total_seconds()
    return RetryAt(record, now + pause, pause, error, verdict.counts)


def _decide_batch(
    turn: list[KeyQueue[Record[Any]]], report: TurnReport, spec: HandlerSpec, now: float, *, is_outage: bool
) -> Decision:
    """Members of a batch failed: each is judged for itself, and those that are tried again are so together."""
    back, failed = report.back, report.members
    if is_outage:
        kept = {id(record) for _, record, error in failed if is_failure(error, spec.retry)}
        failed = [member for member in failed if id(member[1]) not in kept]
        back = back | kept
    errors: dict[int, dict[int, Exception]] = {}
    for index, record, error in failed:
        errors.setdefault(index, {})[id(record)] = error
    verdicts: dict[tuple[int, int], Verdict] = {}
    keys = []
    for index, queue in enumerate(turn):
        found, work = errors.get(index, {}), queue.work()
        if not found and back.isdisjoint(map(id, work)):
            continue
        # In the order of the key: that of the members has those first that cannot be decoded.
        judged = _judged([(record, found[id(record)]) for record in work if id(record) in found], spec, verdicts)
        outcomes: list[Outcome] = []
        stays = set(back)
        for record, error, verdict in judged:
            if isinstance(verdict, TryAgain):
                outcomes.append(_retry(record, error, verdict, now))
                stays.add(id(record))
            else:
                step = verdict.step if isinstance(verdict, Defer) else ERROR_TOPIC
                outcomes.append(Copy(record, step, error, superseded=report.older_than([record])))
        left = [record for record in work if id(record) in stays]
        # In the order of the key. What a record supersedes waits with it.
        over = [old for new in left for old in (*report.older_than([new]), new)] if left else queue.taken
        keys.append(KeyDecision(index, over, outcomes))
    return Decision(keys, len(report.members) - len(failed))


def _judged(
    failed: list[tuple[Record[Any], Exception]], spec: HandlerSpec, verdicts: dict[tuple[int, int], Verdict]
) -> list[tuple[Record[Any], Exception, Verdict]]:
    judged = []
    for record, error in failed:
        # One verdict for the same error and calls: a random pause each would tear the batch apart.
        name = (id(error), record.attempt - record.before)
        if name not in verdicts:
            verdicts[name] = judge(error, name[1], spec.retry, spec.step)
        judged.append((record, error, verdicts[name]))
    return _in_order(judged, spec) if spec.parks_behind else judged


def _in_order(
    judged: list[tuple[Record[Any], Exception, Verdict]], spec: HandlerSpec
) -> list[tuple[Record[Any], Exception, Verdict]]:
    """Keep the order of a key whose later records queue behind earlier ones, when their handler asks for delays.

    No record may go to a higher step than an earlier one of its partition, or to any step while an earlier one waits
    in place: it would be called before it. So the earlier one goes as high, or the later one waits too.
    """
    waits: dict[int, TryAgain] = {}
    highest: dict[int, int] = {}
    for at, (record, error, verdict) in enumerate(judged):
        earlier = waits.get(record.partition)
        if isinstance(verdict, TryAgain):
            waits[record.partition] = verdict
        elif isinstance(verdict, Defer) and earlier is not None:
            asked = spec.retry.delays[verdict.step - 1] if isinstance(error, RetryAfter) else earlier.pause
            judged[at] = (record, error, TryAgain(max(earlier.pause, asked), earlier.counts))
    for at, (record, error, verdict) in reversed(list(enumerate(judged))):
        if isinstance(verdict, Defer):
            step = highest[record.partition] = max(verdict.step, highest.get(record.partition, 0))
            judged[at] = (record, error, Defer(step))
    return judged


class Fate(Enum):
    """What follows for a message from the answer to it."""

    ARRIVED = auto()
    REPEAT = auto()
    """Send it again after a pause."""
    REPLACE = auto()
    """Send a smaller copy at once."""
    WAIT = auto()
    """There is nothing smaller: send the copy again after a pause; a limit may have been raised."""
    GIVE_UP = auto()
    """It can never be delivered: its records are parked."""


def is_hopeless(error: Any) -> bool:
    """Whether repeating the same message cannot help."""
    return isinstance(error, (MessageTooLargeError, TypeError, ValueError))


def resolve(  # noqa: PLR0911 - a table
    message: PendingMessage, error: Exception | None, *, waits: bool, headers_size: int
) -> tuple[Fate, Reduction]:
    """What follows for a message from the answer to it, and what a copy that replaces it leaves out.

    The trace is what laneway added to a parked copy; without it the copy is hardly larger than the record was. Where
    even that does not fit, the whole copy is tried again and again, each time followed by the one without the trace.
    Or, if that is asked for, a reference goes out that says where the record is.

    Args:
        message: what was sent.
        error: why it was not delivered; None when it was.
        waits: whether a copy that does not fit waits until it does.
        headers_size: bytes of the record's own headers.
    """
    if error is None:
        return Fate.ARRIVED, ""
    if not isinstance(message, ErrorCopy):
        gives_up = is_hopeless(error) or (
            isinstance(message, ReplyMessage) and isinstance(error, TimestampRefusedError)
        )
        # What is too large for a retry topic is parked: a copy without its value could not be handled later.
        return (Fate.GIVE_UP if gives_up else Fate.REPEAT), ""
    reduced, is_too_large = message.reduced, isinstance(error, MessageTooLargeError)
    if not is_hopeless(error):
        return Fate.REPEAT, reduced
    if reduced == "":
        return Fate.REPLACE, "trace"
    if is_too_large and waits:
        return Fate.WAIT, ""
    if reduced == "trace":
        # What no client takes may be in a header that an interceptor has made.
        return Fate.REPLACE, headers_size if is_too_large else 0
    return (Fate.REPLACE, reduced // 2) if reduced else (Fate.WAIT, reduced)
