"""What `laneway errors replay` and `drop` share: plan, ask, carry out, tell."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from laneway._declare.units import in_words
from laneway._kafka import KafkaSender
from laneway.admin import Drop, ErrorLog, RateLimit, Redrive, Replay, plan_redrive
from laneway.cli._errors_view import safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from laneway.admin import Action, ErrorTopic, Filter, LeftOut, RedrivePlan, Result

__all__ = ["Wish", "carry_out", "refuse"]

_INTERRUPTED = 130  # as a shell says it: 128 and the number of SIGINT


def refuse(text: str) -> NoReturn:
    """End with exit code 2: the command was used wrongly, and nothing was done."""
    typer.secho(f"laneway: {text}", fg=typer.colors.RED, err=True)
    raise typer.Exit(2)


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for."""

    verb: str
    """``replay`` or ``drop``."""
    filter: Filter
    limit: int | None
    is_dry: bool
    is_sure: bool
    to: str | None = None
    rate: int = 0

    @property
    def participle(self) -> str:
        """The verb when it is over."""
        return "replayed" if self.verb == "replay" else "dropped"


@dataclass(frozen=True, slots=True)
class _Errand:
    """The part of a wish that is about one error topic."""

    log: ErrorLog
    deed: Action
    plan: RedrivePlan
    targets: tuple[str, ...]

    @property
    def where(self) -> str:
        """Where records go, as part of a sentence."""
        return f" to {', '.join(self.targets)}" if self.targets else ""


def carry_out(topics: Sequence[ErrorTopic], wish: Wish) -> None:
    """Find out what is meant, ask, do it, and tell what was done.

    Raises:
        typer.Exit: 1 when not all could be done, 2 when nobody can be asked, 130 after Ctrl-C.
    """
    if not (wish.is_sure or wish.is_dry or sys.stdin.isatty()):
        refuse(f"nobody can be asked here, because the input is no terminal; add --yes to {wish.verb}, or --dry-run")
    with ExitStack() as stack:
        errands = _errands(topics, wish, stack)
        for errand in errands:
            _announce(errand, wish)
        if not any(errand.plan.chosen for errand in errands):
            typer.echo(f"there is nothing to {wish.verb}")
            return
        if wish.is_dry:
            typer.echo("nothing was written: this was a dry run")
            return
        if not wish.is_sure:
            typer.confirm("Go on?", abort=True)
        results = _perform(errands, wish)
    if any(result.trouble or result.refused for result in results):
        raise typer.Exit(1)
    if any(result.was_stopped for result in results):
        raise typer.Exit(_INTERRUPTED)


def _errands(topics: Sequence[ErrorTopic], wish: Wish, stack: ExitStack) -> list[_Errand]:
    errands: list[_Errand] = []
    for topic in topics:
        log = stack.enter_context(ErrorLog(topic))
        partitions = log.partitions()
        if topic.name not in partitions:
            typer.echo(f"nothing is parked: there is no topic {topic.name} yet")
            continue
        deed: Action = Drop(wish.filter)
        if wish.verb == "replay":
            _require_targets(topic, wish.to, partitions)
            deed = Replay(topic, wish.filter, partitions, wish.to)
        if not wish.is_dry:
            log.require_idle()
        left = None if wish.limit is None else wish.limit - sum(errand.plan.chosen for errand in errands)
        plan = plan_redrive(log, log.extents(), deed.choose, left)
        targets = (wish.to,) if wish.to else topic.sources
        errands.append(_Errand(log, deed, plan, targets if wish.verb == "replay" else ()))
    return errands


def _require_targets(topic: ErrorTopic, to: str | None, partitions: dict[str, int]) -> None:
    """Refuse what a producer would answer by creating a topic, or by parking records without their reasons."""
    if to == topic.name:
        refuse(f"--to {to} is the error topic itself; name another topic")
    for name in (to,) if to else topic.sources:
        if name not in partitions:
            refuse(f"there is no topic {name} to replay to; create it, or name another with --to")


def _announce(errand: _Errand, wish: Wish) -> None:
    plan, name = errand.plan, errand.log.topic.name
    if plan.chosen:
        start = f"would {wish.verb}" if wish.is_dry else f"about to {wish.verb}"
        typer.echo(f"{name}: {start} {_records(plan.chosen)}{errand.where}")
        _warn_of_retention(errand)
    if plan.kept:
        typer.echo(f"{name}: {_records(plan.kept)} before that to be written again at the end, and so kept open")
    _name(f"{name}: left alone", plan.left_out)


def _warn_of_retention(errand: _Errand) -> None:
    """Brokers remove a record by its own timestamp, and a replayed one keeps that of its first life."""
    for target in errand.targets:
        kept = errand.log.retention(target)
        if kept is not None and errand.plan.oldest < (time.time() - kept.total_seconds()) * 1000:
            typer.secho(
                f"warning: some of them are older than the {in_words(kept)} that {target} keeps records, so Kafka may "
                "remove them again before a handler has seen them; have the app running, or raise retention.ms first",
                fg=typer.colors.YELLOW,
                err=True,
            )


def _name(start: str, found: dict[str, LeftOut]) -> None:
    for reason, left_out in found.items():
        places = ", ".join(map(str, left_out.places))
        more = f" and {left_out.count - len(left_out.places):,} more" if left_out.count > len(left_out.places) else ""
        typer.echo(f"{start}, {safe(reason, 500)}: {_records(left_out.count)} ({places}{more})")


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


def _perform(errands: Iterable[_Errand], wish: Wish) -> list[Result]:
    errands = [errand for errand in errands if errand.plan.chosen]
    results: list[Result] = []
    pace = RateLimit(wish.rate or None)
    with _stopping() as is_stopping, _progress(wish.verb, sum(errand.plan.chosen for errand in errands)) as progress:
        for errand in errands:
            options: dict[str, Any] = {
                **errand.log.topic.cluster.producer_options(),
                # Whatever the app's own messages are worth: what is dealt with here exists nowhere else.
                "enable.idempotence": True,
                "acks": "all",
            }
            carrier = Redrive(
                errand.log,
                errand.deed,
                KafkaSender(options),
                pace=pace,
                is_stopping=is_stopping,
                progress=progress,
            )
            results.append(carrier.run(errand.plan))
            if results[-1].trouble or results[-1].was_stopped:
                break
    for errand, result in zip(errands, results, strict=False):
        _tell(errand, result, wish)
    return results


def _tell(errand: _Errand, result: Result, wish: Wish) -> None:
    name = errand.log.topic.name
    kept = f", {_records(result.kept)} kept open" if result.kept else ""
    typer.echo(f"{name}: {_records(result.done)} {wish.participle}{errand.where}{kept}")
    _name(f"{name}: kept open", result.refused)
    if result.repeatable:
        typer.echo(
            f"{name}: {_records(result.repeatable)} {wish.participle} but not committed as done, and so still open"
        )
    left = errand.plan.chosen - result.done - result.repeatable - sum(each.count for each in result.refused.values())
    if left > 0:
        typer.echo(f"{name}: {_records(left)} not reached; they are open")
    if result.trouble:
        typer.secho(f"laneway: {safe(result.trouble, 1_000)}", fg=typer.colors.RED, err=True)


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Whether a stop was asked for. The first signal asks, the second one ends at once."""
    asked = False

    def ask(number: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        typer.echo("finishing what is under way; once more to end at once", err=True)
        del number

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    except KeyboardInterrupt:
        typer.echo("ended at once: nothing is lost, but the last records may come twice", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress(verb: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal; elsewhere the summary is enough."""
    if not sys.stdout.isatty():
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bars:
        task = bars.add_task(verb, total=total)
        yield lambda: bars.advance(task)
