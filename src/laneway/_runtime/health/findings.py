"""Findings: what a snapshot says about the health of an app on one cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway._declare.health import Level, lasting
from laneway._declare.units import in_words
from laneway._runtime.health.snapshot import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laneway._core.locate import BreakerStatus, HandlerStatus, Location
    from laneway._core.outbox import Trouble
    from laneway._runtime.health.progress import Progress
    from laneway._runtime.health.snapshot import MemberStatus, Snapshot

__all__ = ["breaker_text", "cause", "findings_of", "trouble_text"]

_SHOWN = 10  # stalled partitions that are findings of their own


def findings_of(
    progress: Progress, seen: Snapshot, now: float, *, stalled_after: float, minimum_brokers: int
) -> Iterator[Finding]:
    """The findings about one cluster."""
    where, brokers = seen.where, seen.brokers
    if brokers.code:
        yield Finding(Level.CRITICAL, brokers.code, where, brokers.text, now - brokers.since)
    if brokers.brokers is not None and brokers.brokers < minimum_brokers:
        text = f"{brokers.brokers} brokers at {where}; at least {minimum_brokers} are expected"
        yield Finding(Level.WARNING, "few-brokers", where, text)
    if seen.member is not None:
        yield from _of_member(seen.member, where, has_partitions=bool(seen.owned))
    yield from seen.findings
    for handler in seen.handlers:
        yield from _of_handler(handler)
    yield from _of_commits(progress, where)
    serious = [stall for stall in progress.stalls(seen, stalled_after) if stall.code != "delay"]
    for stall in serious[:_SHOWN]:
        subject = f"{stall.topic}[{stall.partition}]"
        yield Finding(Level.WARNING, "stalled", subject, str(stall), stall.age.total_seconds())
    if len(serious) > _SHOWN:
        text = f"{len(serious) - _SHOWN} more partitions make no progress"
        yield Finding(Level.WARNING, "stalled", where, text, serious[-1].age.total_seconds())


def _of_handler(handler: HandlerStatus) -> Iterator[Finding]:
    name = handler.handler
    if handler.breaker is not None:
        yield Finding(Level.WARNING, "breaker-open", name, breaker_text(name, handler.breaker), handler.breaker.seconds)
    known = {trouble.topic for trouble in handler.troubles}
    for late in handler.late:
        if late.topic not in known:
            text = f"{late.words}; records of handler {name!r} wait"
            yield Finding(Level.WARNING, "copies-late", late.topic, text, late.seconds)
    for trouble in handler.troubles:
        text = f"{trouble_text(trouble)}; records of handler {name!r} wait, and the write is retried"
        yield Finding(Level.CRITICAL, "cannot-write", trouble.topic, text, trouble.seconds)


def _of_member(member: MemberStatus, where: str, *, has_partitions: bool) -> Iterator[Finding]:
    if member.silent > member.allowed and not member.is_over:
        text = f"the consumer has not polled {where} for {lasting(member.silent)}; the group may remove it"
        yield Finding(Level.CRITICAL, "not-polling", where, text, member.silent)
    if has_partitions:
        return
    killed = f"those of a killed member are assigned after its session timeout ({in_words(member.session)})"
    if not member.has_joined:
        text = f"waiting for the group to assign partitions; {killed}"
        yield Finding(Level.WARNING, "no-partitions", where, text)
    else:
        text = f"no partitions assigned: the group has more members than partitions; {killed}"
        yield Finding(Level.OK, "spare", where, text)


def _of_commits(progress: Progress, where: str) -> Iterator[Finding]:
    late = progress.uncommitted()
    if late:
        topic, partition = min(late)
        more = f" and {len(late) - 1} more" if len(late) > 1 else ""
        seconds = max(late.values())
        text = f"for {lasting(seconds)} nothing was committed of {topic}[{partition}]{more}, where records are finished"
        yield Finding(Level.WARNING, "commits-late", where, text, seconds)


def cause(found: Location, handler: HandlerStatus) -> tuple[str, str]:
    """The cause why a record is not finished: a code and a text."""
    return ("lane" if found.code == "untaken" else found.code), _text(found, handler)


def breaker_text(name: str, state: BreakerStatus) -> str:
    """A text about a handler's open breaker."""
    probe = f"the next probe is due in {lasting(state.probe_in)}" if state.probe_in > 0 else "a probe is due"
    return (
        f"the breaker of handler {name!r} has been open for {lasting(state.seconds)} after {state.failures} "
        f"consecutive failures{f', first with {state.error}' if state.error else ''}; {probe}"
    )


def trouble_text(trouble: Trouble) -> str:
    """A text about a topic that cannot be written to."""
    again = f", {trouble.tries} times so far" if trouble.tries > 1 else ""
    return f"cannot write to {trouble.topic}: {trouble.error}{again}"


def _text(found: Location, handler: HandlerStatus) -> str:  # noqa: PLR0911, PLR0912, C901 - a table
    name = f"handler {handler.handler!r}"
    inner = cause(found.inner, handler)[1] if found.inner is not None else ""
    match found.code:
        case "running" if found.end:
            return f"{name} is handling a table that ends at offset {found.end - 1}"
        case "running":
            batch, turn = f" with a batch of {found.count:,}", f" with {found.count:,} records, of which it is one"
            size = "" if found.count <= 1 else batch if handler.is_batch else turn
            attempt = f", attempt {found.attempt}" if found.attempt > 1 else ""
            return f"{name} has been running for {lasting(found.seconds)}{size}{attempt}"
        case "behind":
            what = "partition" if handler.is_ordered_by_partition else "key"
            topic, partition, offset = found.head or ("", 0, 0)
            return f"it waits behind {topic}[{partition}]@{offset} of its {what}: {inner}"
        case "next-try":
            due = "" if found.due is None else f", due in {lasting(found.due)}"
            error = f", after {found.error}" if found.error else ""
            return f"it waits for its retry, attempt {found.attempt}{due}{error}"
        case "breaker":
            if handler.breaker is None:
                return f"the breaker of {name} was open a moment ago"
            return breaker_text(handler.handler, handler.breaker)
        case "untaken":
            return f"{name} has not started it yet"
        case "lane":
            return _lane(name, handler)
        case "batch":
            return f"it waits for the batch of {name} to be full"
        case "acknowledge":
            return f"{name} has returned without acknowledging it"
        case "copy":
            late = [*map(trouble_text, handler.troubles)] or [each.words for each in handler.late]
            unsafe = f"its copy or message is not acknowledged yet: {'; '.join(late)}" if late else ""
            return unsafe or handler.trouble or "its copy or message is not acknowledged by the brokers yet"
        case "loop":
            return f"the event loop does not answer, because something blocks it; {inner}"
        case "group":
            return "the consumer did not poll for too long, and waits until the group confirms its partitions"
        case "left":
            return "the next run handles it, because this one is ending"
        case _:
            return "it is in flight"


def _lane(name: str, handler: HandlerStatus) -> str:
    busy, lanes = handler.busy, handler.lanes
    if busy >= lanes:
        return f"it waits for a free lane of {name}; all {lanes:,} are busy"
    if handler.is_strict and busy:
        return f"it waits for a free lane of its partition; {name} has strict lanes"
    return f"it waits for a lane of {name}, of which {busy:,} of {lanes:,} are busy"
