"""Stalls in words: what a record waits for, said to a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway._declare.health import lasting

if TYPE_CHECKING:
    from laneway._core.locate import BreakerStatus, HandlerStatus, Location
    from laneway._core.troubles import Trouble

__all__ = ["breaker_words", "cause", "trouble_words"]

_NOT_SAFE = "its copy or message is not safe yet"


def cause(found: Location, handler: HandlerStatus) -> tuple[str, str]:
    """What a record waits for: a code and words.

    Args:
        found: where it is.
        handler: how its handler is doing.
    """
    words = _WORDS.get(found.code, _worked_on)(found, handler)
    return ("lane" if found.code == "untaken" else found.code), words


def breaker_words(name: str, state: BreakerStatus) -> str:
    """That a handler's breaker is open, and what is known of it."""
    probe = f"the next probe is due in {lasting(state.probe_in)}" if state.probe_in > 0 else "a probe is due"
    return (
        f"the breaker of handler {name!r} is open for {lasting(state.seconds)} after "
        f"{state.failures} failures in a row{f', first with {state.error}' if state.error else ''}; {probe}"
    )


def trouble_words(trouble: Trouble) -> str:
    """That a topic cannot be written to."""
    again = f", {trouble.tries} times so far" if trouble.tries > 1 else ""
    return f"cannot write to {trouble.topic}: {trouble.error}{again}"


def _running(found: Location, handler: HandlerStatus) -> str:
    if found.end:
        return f"handler {handler.handler!r} is at work on a table that reaches to offset {found.end - 1}"
    words = f"handler {handler.handler!r} has been running for {lasting(found.seconds)}"
    if found.count > 1:
        batch, turn = f" with a batch of {found.count:,}", f" with {found.count:,} records, of which it is one"
        words += batch if handler.is_batch else turn
    return words + (f", attempt {found.attempt}" if found.attempt > 1 else "")


def _behind(found: Location, handler: HandlerStatus) -> str:
    what = "partition" if handler.is_ordered_by_partition else "key"
    topic, partition, offset = found.head or ("", 0, 0)
    why = cause(found.inner, handler)[1] if found.inner is not None else ""
    return f"it waits behind {topic}[{partition}]@{offset} of its {what}: {why}"


def _next_try(found: Location, _: HandlerStatus) -> str:
    due = "" if found.due is None else f", due in {lasting(found.due)}"
    error = f", after {found.error}" if found.error else ""
    return f"it waits for its next try, attempt {found.attempt}{due}{error}"


def _lane(_: Location, handler: HandlerStatus) -> str:
    name, busy, lanes = handler.handler, handler.busy, handler.lanes
    if busy >= lanes:
        return f"it waits for a free lane of handler {name!r}, which are all busy ({lanes:,})"
    if handler.is_strict and busy:
        return f"it waits for a free lane of its partition; handler {name!r} has strict lanes"
    return f"it waits for a lane of handler {name!r}, of which {busy:,} of {lanes:,} are busy"


def _copy(_: Location, handler: HandlerStatus) -> str:
    if handler.troubles:
        return f"{_NOT_SAFE}: " + "; ".join(map(trouble_words, handler.troubles))
    if handler.late:
        return f"{_NOT_SAFE}: " + "; ".join(late.words for late in handler.late)
    return handler.trouble or "its copy or message has not been acknowledged by the brokers yet"


def _breaker(_: Location, handler: HandlerStatus) -> str:
    if handler.breaker is None:
        return f"the breaker of handler {handler.handler!r} was open a moment ago"
    return breaker_words(handler.handler, handler.breaker)


def _loop(found: Location, handler: HandlerStatus) -> str:
    seen = cause(found.inner, handler)[1] if found.inner is not None else ""
    return f"the event loop does not answer: something blocks it; {seen}"


def _group(_: Location, __: HandlerStatus) -> str:
    return "this process did not poll for too long, and waits for its group to say which partitions are still its own"


def _left(_: Location, __: HandlerStatus) -> str:
    return "it is left for the next start, because this one is ending"


def _untaken(_: Location, handler: HandlerStatus) -> str:
    return f"handler {handler.handler!r} has not taken it up yet"


def _batch(_: Location, handler: HandlerStatus) -> str:
    return f"it waits for the batch of handler {handler.handler!r} to be full"


def _acknowledge(_: Location, handler: HandlerStatus) -> str:
    return f"handler {handler.handler!r} has returned and not acknowledged it yet"


def _worked_on(_: Location, __: HandlerStatus) -> str:
    return "it is being worked on"


_WORDS = {
    "running": _running,
    "behind": _behind,
    "next-try": _next_try,
    "breaker": _breaker,
    "untaken": _untaken,
    "lane": _lane,
    "batch": _batch,
    "acknowledge": _acknowledge,
    "copy": _copy,
    "loop": _loop,
    "group": _group,
    "left": _left,
}
