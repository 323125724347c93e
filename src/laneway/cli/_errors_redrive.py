"""What `laneway errors replay` and `drop` share: plan, confirm, carry out, report."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from laneway._declare.units import in_words
from laneway._kafka import KafkaSender
from laneway.admin import Drop, ErrorLog, Redrive, Replay, Throttle, Watcher, plan_redrive
from laneway.cli._errors_view import safe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from laneway.admin import Action, ErrorTopic, Filter, LeftOut, RedrivePlan, Result

__all__ = ["Request", "carry_out", "refuse"]

_INTERRUPTED = 130  # as shells report it: 128 plus the number of SIGINT


def refuse(text: str) -> NoReturn:
    """End with exit code 2, wrong usage; nothing was done."""
    typer.secho(f"laneway: {text}", fg=typer.colors.RED, err=True)
    raise typer.Exit(2)


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for."""

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
        """The verb in the past."""
        return "replayed" if self.verb == "replay" else "dropped"


@dataclass(frozen=True, slots=True)
class _Job:
    """A request for one error topic."""

    log: ErrorLog
    action: Action
    plan: RedrivePlan
    targets: tuple[str, ...]

    @property
    def where(self) -> str:
        """The targets, for a message."""
        return f" to {', '.join(self.targets)}" if self.targets else ""


def carry_out(topics: Sequence[ErrorTopic], request: Request) -> None:
    """Show the plan, ask for confirmation, carry it out, and print what was done.

    Raises:
        typer.Exit: 1 when some records are still open, 2 when it cannot ask for confirmation, 130 after Ctrl-C.
    """
    if not (request.is_sure or request.is_dry or sys.stdin.isatty()):
        refuse("stdin is not a terminal, so laneway cannot ask for confirmation; add --yes or --dry-run")
    with ExitStack() as stack:
        jobs = _jobs(topics, request, stack)
        for job in jobs:
            _announce(job, request)
        if not any(job.plan.chosen for job in jobs):
            typer.echo(f"there is nothing to {request.verb}")
            return
        if request.is_dry:
            typer.echo("nothing was written: this was a dry run")
            return
        if not request.is_sure:
            typer.confirm("Continue?", abort=True)
        results = _perform(jobs, request)
    if any(result.trouble or result.refused for result in results):
        raise typer.Exit(1)
    if any(result.was_stopped for result in results):
        raise typer.Exit(_INTERRUPTED)


def _jobs(topics: Sequence[ErrorTopic], request: Request, stack: ExitStack) -> list[_Job]:
    jobs: list[_Job] = []
    for topic in topics:
        log = stack.enter_context(ErrorLog(topic))
        partitions = log.partitions()
        if topic.name not in partitions:
            typer.echo(f"nothing is parked: there is no topic {topic.name} yet")
            continue
        action: Action = Drop(request.filter)
        if request.verb == "replay":
            _require_targets(topic, request.to, partitions)
            action = Replay(topic, request.filter, partitions, request.to)
        if not request.is_dry:
            log.require_idle()
        left = None if request.limit is None else request.limit - sum(job.plan.chosen for job in jobs)
        plan = plan_redrive(log, log.extents(), action.choose, left)
        targets = (request.to,) if request.to else topic.sources
        jobs.append(_Job(log, action, plan, targets if request.verb == "replay" else ()))
    return jobs


def _require_targets(topic: ErrorTopic, to: str | None, partitions: dict[str, int]) -> None:
    """Refuse a target that does not exist, or that is the error topic itself."""
    if to == topic.name:
        refuse(f"--to {to} is the error topic itself; name another topic")
    for name in (to,) if to else topic.sources:
        if name not in partitions:
            refuse(f"there is no topic {name} to replay to; create it, or name another with --to")


def _announce(job: _Job, request: Request) -> None:
    plan, name = job.plan, job.log.topic.name
    if plan.chosen:
        start = f"would {request.verb}" if request.is_dry else f"about to {request.verb}"
        typer.echo(f"{name}: {start} {_records(plan.chosen)}{job.where}")
        _warn_of_retention(job)
    if plan.kept:
        typer.echo(f"{name}: {_records(plan.kept)} before them will be re-appended to the error topic and stay open")
    _name(f"{name}: left alone", plan.left_out)


def _warn_of_retention(job: _Job) -> None:
    """Warn that brokers may remove a replayed record soon, because it keeps its timestamp."""
    for target in job.targets:
        kept = job.log.retention(target)
        if kept is not None and job.plan.oldest < (time.time() - kept.total_seconds()) * 1000:
            typer.secho(
                f"warning: some of them are older than the {in_words(kept)} that {target} keeps records, so Kafka may "
                "remove them again before they are handled; start the app or raise retention.ms first",
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


def _perform(jobs: Iterable[_Job], request: Request) -> list[Result]:
    jobs = [job for job in jobs if job.plan.chosen]
    results: list[Result] = []
    pace = Throttle(request.rate or None)
    with _watching(request.verb, sum(job.plan.chosen for job in jobs)) as watcher:
        for job in jobs:
            options: dict[str, Any] = {
                **job.log.topic.cluster.producer_options(),
                # Also when the app's own producer has acks: leader. These records exist nowhere else.
                "enable.idempotence": True,
                "acks": "all",
            }
            redrive = Redrive(job.log, job.action, KafkaSender(options), pace=pace, watcher=watcher)
            results.append(redrive.run(job.plan))
            if results[-1].trouble or results[-1].was_stopped:
                break
    for job, result in zip(jobs, results, strict=False):
        _report(job, result, request)
    return results


def _report(job: _Job, result: Result, request: Request) -> None:
    name = job.log.topic.name
    kept = f", {_records(result.kept)} kept open" if result.kept else ""
    typer.echo(f"{name}: {_records(result.done)} {request.participle}{job.where}{kept}")
    _name(f"{name}: kept open", result.refused)
    if result.repeatable:
        typer.echo(
            f"{name}: {_records(result.repeatable)} {request.participle} but not committed as done, so still open"
        )
    left = job.plan.chosen - result.done - result.repeatable - sum(each.count for each in result.refused.values())
    if left > 0:
        typer.echo(f"{name}: {_records(left)} not reached; they are open")
    if result.trouble:
        typer.secho(f"laneway: {safe(result.trouble, 1_000)}", fg=typer.colors.RED, err=True)


class _TerminalWatcher(Watcher):
    """Shows a progress bar on a terminal. The first signal requests a stop, the second one ends at once."""

    def __init__(self, verb: str, total: int) -> None:
        self.bars: Any = None
        if sys.stdout.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.bars = Progress(*columns, transient=True)
            self._task = self.bars.add_task(verb, total=total)

    def started(self) -> None:
        if self.bars is not None:
            self.bars.advance(self._task)

    def stop(self, _signal: int, _frame: object) -> None:
        if self.is_stopping:
            raise KeyboardInterrupt
        self.is_stopping = True
        typer.echo("finishing records in flight; press Ctrl-C again to stop now", err=True)


@contextmanager
def _watching(verb: str, total: int) -> Iterator[_TerminalWatcher]:
    watcher = _TerminalWatcher(verb, total)
    before = {number: signal.signal(number, watcher.stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with watcher.bars or nullcontext():
            yield watcher
    except KeyboardInterrupt:
        typer.echo("stopped: nothing is lost, but the last records may be sent twice", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
