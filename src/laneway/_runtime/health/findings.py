"""Findings: what a snapshot says about the health of an app on one cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway._declare.health import Level, lasting
from laneway._declare.units import in_words
from laneway._runtime.health.snapshot import Finding
from laneway._runtime.health.stalls import breaker_words, trouble_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laneway._core.locate import HandlerStatus
    from laneway._runtime.health.progress import Progress
    from laneway._runtime.health.snapshot import MemberStatus, Snapshot

__all__ = ["findings_of"]

_SHOWN = 10  # stalled partitions that are findings of their own


def findings_of(
    progress: Progress, seen: Snapshot, now: float, *, stalled_after: float, minimum_brokers: int
) -> Iterator[Finding]:
    """The findings about one cluster.

    Args:
        progress: of its partitions.
        seen: the snapshot.
        now: the monotonic time.
        stalled_after: seconds without progress that make a partition stalled.
        minimum_brokers: with fewer, a warning.
    """
    where, brokers = seen.where, seen.brokers
    if brokers.code:
        yield Finding(Level.CRITICAL, brokers.code, where, brokers.words, now - brokers.since)
    if brokers.brokers is not None and brokers.brokers < minimum_brokers:
        words = f"{brokers.brokers} brokers at {where}; at least {minimum_brokers} are expected"
        yield Finding(Level.WARNING, "few-brokers", where, words)
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
        words = f"{len(serious) - _SHOWN} more partitions make no progress"
        yield Finding(Level.WARNING, "stalled", where, words, serious[-1].age.total_seconds())


def _of_handler(handler: HandlerStatus) -> Iterator[Finding]:
    name = handler.handler
    if handler.breaker is not None:
        yield Finding(
            Level.WARNING, "breaker-open", name, breaker_words(name, handler.breaker), handler.breaker.seconds
        )
    known = {trouble.topic for trouble in handler.troubles}
    for late in handler.late:
        if late.topic not in known:
            words = f"{late.words}; records of handler {name!r} wait"
            yield Finding(Level.WARNING, "copies-late", late.topic, words, late.seconds)
    for trouble in handler.troubles:
        words = f"{trouble_words(trouble)}; records of handler {name!r} wait, and the write is retried"
        yield Finding(Level.CRITICAL, "cannot-write", trouble.topic, words, trouble.seconds)


def _of_member(member: MemberStatus, where: str, *, has_partitions: bool) -> Iterator[Finding]:
    if member.silent > member.allowed and not member.is_over:
        words = f"the consumer has not polled {where} for {lasting(member.silent)}; the group may remove it"
        yield Finding(Level.CRITICAL, "not-polling", where, words, member.silent)
    if has_partitions:
        return
    killed = f"those of a killed member are assigned after its session timeout ({in_words(member.session)})"
    if not member.has_joined:
        words = f"waiting for the group to assign partitions; {killed}"
        yield Finding(Level.WARNING, "no-partitions", where, words)
    else:
        words = f"no partitions assigned: the group has more members than partitions; {killed}"
        yield Finding(Level.OK, "spare", where, words)


def _of_commits(progress: Progress, where: str) -> Iterator[Finding]:
    late = progress.uncommitted()
    if late:
        topic, partition = min(late)
        more = f" and {len(late) - 1} more" if len(late) > 1 else ""
        seconds = max(late.values())
        words = (
            f"for {lasting(seconds)} nothing was committed of {topic}[{partition}]{more}, where records are finished"
        )
        yield Finding(Level.WARNING, "commits-late", where, words, seconds)
