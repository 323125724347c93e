"""`laneway errors run`: handle parked records again, once and now."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from laneway.cli._logging import LogFormatOption, LogLevelOption
from laneway.cli._options import BrokersOption, ConfigOption, ProfileOption, TargetArgument
from laneway.cli._run import EngineOption

if TYPE_CHECKING:
    from laneway._declare.app import App
    from laneway.settings import Settings

__all__ = ["run"]


class ActionName(StrEnum):
    """What is done with a record."""

    HANDLE = "handle"
    REPLAY = "replay"


def run(
    target: TargetArgument,
    max_errors: Annotated[
        int | None, typer.Option(min=0, help="Skip records that were parked this often; 0 skips none.")
    ] = None,
    stop_when_new: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Stop before records parked within this time: 5m; 0s means no limit."),
    ] = None,
    action: Annotated[
        ActionName | None, typer.Option(help="Call the handler, or copy records back to their topic.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Only this error topic, when the app has several.")] = None,
    engine: EngineOption = None,
    master: Annotated[str | None, typer.Option(help="Spark master: local[*], spark://host:port, yarn, k8s://…")] = None,
    config: ConfigOption = None,
    profile: ProfileOption = "default",
    brokers: BrokersOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing unless something is wrong.")] = False,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Run once over the parked records of an app, as its error consumer does on its schedule.

    Options that are not given come from the code and the configuration. A record that fails again is parked at the end
    of the error topic and waits for the next run. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3
    stopped by force.
    """
    from laneway._engines.engine_choice import engine_of
    from laneway.cli._live_view import RunView
    from laneway.cli._run import loaded, summary, where
    from laneway.cli._target import find_app

    settings = loaded(
        config,
        profile,
        {
            "engine": engine,
            "log_format": log_format,
            "log_level": log_level,
            "spark.master": master,
            "brokers": brokers,
            "errors.max_errors": max_errors,
            "errors.stop_when_new": stop_when_new,
            "errors.action": action,
        },
    )
    app = find_app(target)
    _require_topic(app, settings, topic)
    view = RunView(
        f"error topics of {app.name} on {where(settings)}", quiet=quiet, shows_waits=settings.engine != "spark"
    )
    with view:
        runs = engine_of(settings)(settings, listener=view)
        report = runs.run_errors(app, topic=topic)
    if not quiet:
        nothing = "nothing to run: no parked record is open and old enough"
        typer.echo(summary(report.tally) if report.batches else nothing)
    if report.was_forced:
        raise typer.Exit(3)


def _require_topic(app: App, settings: Settings, topic: str | None) -> None:
    """Refuse an app without handlers, and a topic that is none of its error topics."""
    from laneway._runtime.configure import configured
    from laneway.cli._errors_redrive import refuse

    names = dict.fromkeys(route.error_topic_of(app.name) for route in configured(app, settings).routes)
    if not names:
        refuse(f"app {app.name!r} has no handlers, so it parks nothing; declare one with @app.handler(topic)")
    if topic is not None and topic not in names:
        refuse(f"{topic!r} is no error topic of app {app.name!r}; it has: {', '.join(names)}")
