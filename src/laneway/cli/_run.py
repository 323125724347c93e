"""`laneway run`: run an app until a stop signal."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laneway.cli._logging import LogFormatOption, LogLevelOption, configure_logging
from laneway.cli._options import BrokersOption, ConfigOption, ProfileOption, TargetArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laneway._declare.error_consumer import ErrorRuns
    from laneway.observe import Tally
    from laneway.settings import Settings

__all__ = ["EngineName", "EngineOption", "loaded", "run", "summary", "where"]


class EngineName(StrEnum):
    """Engines to run on."""

    SPARK = "spark"
    DIRECT = "direct"


EngineOption = Annotated[
    EngineName | None,
    typer.Option(help="Where to run: on Spark, or directly in this process. [default: spark, or as configured]"),
]


def run(
    target: TargetArgument,
    engine: EngineOption = None,
    master: Annotated[str | None, typer.Option(help="Spark master: local[*], spark://host:port, yarn, k8s://…")] = None,
    config: ConfigOption = None,
    profile: ProfileOption = "default",
    brokers: BrokersOption = None,
    once: Annotated[bool, typer.Option("--once", help="Handle the records that are there now, then stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing unless something is wrong.")] = False,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Run the handlers of an app until a stop signal.

    The first signal finishes and commits the records in flight, the second stops at once. Exit codes: 0 stopped
    cleanly, 1 failed, 2 wrong usage or configuration, 3 stopped by force.
    """
    from laneway._engines.engine_choice import engine_of
    from laneway._runtime.topics import LagReader
    from laneway.cli._live_view import RunView
    from laneway.cli._target import find_app

    overrides = {"engine": engine, "brokers": brokers, "log_format": log_format, "log_level": log_level}
    settings = loaded(config, profile, overrides | {"spark.master": master})
    app = find_app(target)
    view = RunView(
        f"{app.name} on {where(settings)}",
        lag=LagReader(app, settings),
        quiet=quiet,
        shows_waits=settings.engine != "spark",
    )
    runner = engine_of(settings)(settings, once=once, listener=view)
    if settings.engine == "spark":  # the direct engine reports its counts every second anyway
        view.source = runner
    with view:
        report = runner.run(app)
    if not quiet:
        typer.echo(summary(report.tally))
        if report.errors.tally.read or report.errors.failed or report.errors.left_out:
            typer.echo(_summary_of_errors(report.errors))
    if report.was_forced:
        raise typer.Exit(3)


def where(settings: Settings) -> str:
    """Where an app runs, for a message."""
    return "Spark" if settings.engine == "spark" else "this process"


def loaded(config: Path | None, profile: str, overrides: Mapping[str, object]) -> Settings:
    """The settings of a file, ``laneway.yaml`` by default, of the environment and of flags; logs what is risky."""
    from laneway.observe import logger
    from laneway.settings import load

    path = config or (Path("laneway.yaml") if Path("laneway.yaml").exists() else None)
    given = {key: value for key, value in overrides.items() if value is not None}
    settings = load(path, profile=profile, environ=os.environ, overrides=given)
    configure_logging(settings.log_level, settings.log_format)
    for warning in settings.warnings:
        logger("settings").warning("%s", warning)
    return settings


def _summary_of_errors(errors: ErrorRuns) -> str:
    rare = {"failed": errors.failed, "left out": errors.left_out}
    more = "".join(f", {count:,} {what}" for what, count in rare.items() if count)
    return f"runs over the error topics: {errors.runs:,}{more}; {summary(errors.tally)}"


def summary(tally: Tally) -> str:
    """What a run did, in one line; rare counts appear only when they are not zero."""
    rare = {
        "deferred to a retry topic": tally.deferred,
        "duplicates": tally.duplicates,
        "handled without a claim, because the dedup store was away": tally.unclaimed,
        "dropped": tally.dropped,
        "rescued by a last step": tally.rescued,
        "already copied by a process that ended before its commit": tally.already_copied,
        "lost before they could be read": tally.lost,
    }
    more = "".join(f", {count:,} {what}" for what, count in rare.items() if count)
    return f"{tally.read:,} read: {tally.handled:,} handled, {tally.skipped:,} skipped, {tally.parked:,} parked{more}"
