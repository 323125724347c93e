"""Stalls: texts that say what a record waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway._declare.health import lasting

if TYPE_CHECKING:
    from laneway._core.locate import BreakerStatus, HandlerStatus, Location
    from laneway._core.troubles import Trouble

__all__ = ["breaker_words", "cause", "trouble_words"]


def cause(found: Location, handler: HandlerStatus) -> tuple[str, str]:
    """The cause why a record is not finished: a code and a text."""
    return ("lane" if found.code == "untaken" else found.code), _text(found, handler)


def breaker_words(name: str, state: BreakerStatus) -> str:
    """A text about a handler's open breaker."""
    probe = f"the next probe is due in {lasting(state.probe_in)}" if state.probe_in > 0 else "a probe is due"
    return (
        f"the breaker of handler {name!r} has been open for {lasting(state.seconds)} after {state.failures} "
        f"consecutive failures{f', first with {state.error}' if state.error else ''}; {probe}"
    )


def trouble_words(trouble: Trouble) -> str:
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
            return breaker_words(handler.handler, handler.breaker)
        case "untaken":
            return f"{name} has not started it yet"
        case "lane":
            return _lane(name, handler)
        case "batch":
            return f"it waits for the batch of {name} to be full"
        case "acknowledge":
            return f"{name} has returned without acknowledging it"
        case "copy":
            late = [*map(trouble_words, handler.troubles)] or [each.words for each in handler.late]
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
