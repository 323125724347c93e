"""``laneway errors``: look at parked records, replay them or drop them."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from laneway.cli import _errors_run
from laneway.cli._config import ConfigOption, ProfileOption
from laneway.cli._errors_view import as_json, page

if TYPE_CHECKING:
    from pathlib import Path

    from laneway.admin import ErrorTopic, Filter
    from laneway.cli._errors_carry import Wish

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Look at parked records, run, replay or drop them. A record is open until one of these is done with it.",
)
app.command("run")(_errors_run.run)

Config = ConfigOption
Profile = ProfileOption
Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app, for example billing:app.")]
Topic = Annotated[str | None, typer.Option("--topic", help="Only this error topic, when the app has several.")]
Brokers = Annotated[str | None, typer.Option("--brokers", help="Kafka bootstrap servers, over the configuration.")]
Type = Annotated[
    str | None, typer.Option("--type", help="Only this type of error; * and ? stand for others: 'json.*'.")
]
Text = Annotated[str | None, typer.Option("--message", help="Only errors with this in their message, in any case.")]
Since = Annotated[
    str | None, typer.Option("--since", help="Only parked since then: 2h (ago), 2026-01-31 or 2026-01-31T08:00Z.")
]
Until = Annotated[str | None, typer.Option("--until", help="Only parked before then; written as for --since.")]
Key = Annotated[str | None, typer.Option("--key", help="Only this key: text, or hex:00ff.")]
Handler = Annotated[str | None, typer.Option("--handler", help="Only records that this handler failed on.")]
Origin = Annotated[str | None, typer.Option("--origin", help="Only records from this topic.")]
At = Annotated[
    list[str] | None, typer.Option("--at", metavar="PLACE", help="Only this record, such as 0:17. May be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line, complete.")]
Most = Annotated[int | None, typer.Option("--limit", min=1, help="No more than so many, the first there are.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and write nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command("list")
def list_(
    target: Target,
    topic: Topic = None,
    error_type: Type = None,
    message: Text = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    handler: Handler = None,
    origin: Origin = None,
    at: At = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are done.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Show the newest so many. [default: 50; with --json all]")
    ] = None,
    by_type: Annotated[bool, typer.Option("--by-type", help="Count the types of error instead.")] = False,
    as_lines: Json = False,
    config: Config = None,
    profile: Profile = "default",
    brokers: Brokers = None,
) -> None:
    """List open parked records, the newest last."""
    from laneway.cli._errors_list import Question, list_topic

    question = Question(
        target,
        _filter(error_type, message, since, until, key, handler, origin, at),
        limit,
        everything=everything,
        by_type=by_type,
        as_lines=as_lines,
    )
    for each in _topics(target, topic, config, profile, brokers):
        list_topic(each, question)


@app.command()
def show(
    target: Target,
    place: Annotated[str, typer.Argument(metavar="PLACE", help="The record, as the list names it: 0:17.")],
    topic: Topic = None,
    as_lines: Json = False,
    config: Config = None,
    profile: Profile = "default",
    brokers: Brokers = None,
) -> None:
    """Show everything about one parked record: why it failed, its headers, its value."""
    from laneway.admin import ErrorLog, Position
    from laneway.cli._errors_carry import refuse
    from laneway.errors import LanewayError

    try:
        wanted = Position.parse(place)
    except ValueError as error:
        refuse(str(error))
    topics = _topics(target, topic, config, profile, brokers)
    if len(topics) > 1:
        refuse(f"the app has several error topics; add --topic {' or --topic '.join(each.name for each in topics)}")
    with ErrorLog(topics[0]) as log:
        extents = log.extents()
        parked = log.find(wanted, extents)
        if parked is None:
            raise LanewayError(
                f"there is no record at {wanted} on {log.topic.name}; laneway errors list {target} --all shows those "
                "there are"
            )
        is_open = wanted.offset >= extents[wanted.partition].open
    for line in (as_json(parked, is_open=is_open),) if as_lines else page(parked, is_open=is_open):
        typer.echo(line)


@app.command()
def replay(
    target: Target,
    topic: Topic = None,
    error_type: Type = None,
    message: Text = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    handler: Handler = None,
    origin: Origin = None,
    at: At = None,
    to: Annotated[str | None, typer.Option(metavar="TOPIC", help="Send them there, not to their own topic.")] = None,
    rate: Annotated[int, typer.Option(min=0, help="Records per second; 0 is as fast as it goes.")] = 100,
    limit: Most = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    config: Config = None,
    profile: Profile = "default",
    brokers: Brokers = None,
) -> None:
    """Send open records back to the topic they came from, as they were: all of them, or those that options choose.

    Once the brokers have acknowledged a record it counts as done. Exit codes: 0 done, 1 not all could be done, 2 wrong
    use, 130 interrupted; nothing is lost by an interruption.
    """
    from laneway.cli._errors_carry import Wish

    wanted = _filter(error_type, message, since, until, key, handler, origin, at)
    wish = Wish("replay", wanted, limit, is_dry=dry_run, is_sure=yes, to=to, rate=rate)
    _carry_out(target, topic, wish, config, profile, brokers)


@app.command()
def drop(
    target: Target,
    topic: Topic = None,
    error_type: Type = None,
    message: Text = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    handler: Handler = None,
    origin: Origin = None,
    at: At = None,
    limit: Most = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    config: Config = None,
    profile: Profile = "default",
    brokers: Brokers = None,
) -> None:
    """Be done with open records without replaying them: all of them, or those that options choose.

    They stay on the error topic until its retention removes them, and `list --all` shows them. Exit codes are those of
    replay.
    """
    from laneway.cli._errors_carry import Wish

    wanted = _filter(error_type, message, since, until, key, handler, origin, at)
    wish = Wish("drop", wanted, limit, is_dry=dry_run, is_sure=yes)
    _carry_out(target, topic, wish, config, profile, brokers)


def _carry_out(
    target: str, topic: str | None, wish: Wish, config: Path | None, profile: str, brokers: str | None
) -> None:
    from laneway.cli._errors_carry import carry_out

    carry_out(_topics(target, topic, config, profile, brokers), wish)


def _filter(
    error_type: str | None,
    message: str | None,
    since: str | None,
    until: str | None,
    key: str | None,
    handler: str | None,
    origin: str | None,
    at: list[str] | None,
) -> Filter:
    from laneway.admin import Filter, FilterError
    from laneway.cli._errors_carry import refuse

    try:
        return Filter.parse(
            now=datetime.now(UTC),
            error_type=error_type,
            message=message,
            since=since,
            until=until,
            key=key,
            handler=handler,
            origin=origin,
            places=at or (),
        )
    except FilterError as error:
        refuse(str(error))


def _topics(
    target: str, wanted: str | None, config: Path | None, profile: str, brokers: str | None
) -> list[ErrorTopic]:
    """The error topics of the app, as the configuration has it."""
    from laneway._runtime.configure import cluster_of, configured
    from laneway.admin import error_topics_of
    from laneway.cli._errors_carry import refuse
    from laneway.cli._run import loaded
    from laneway.cli._target import find_app

    for output in (sys.stdout, sys.stderr):
        if hasattr(output, "reconfigure"):
            output.reconfigure(errors="backslashreplace")  # a record's text may be more than the terminal can write
    settings = loaded(config, profile, {"brokers": brokers})
    app = configured(find_app(target), settings)
    topics = error_topics_of(app, lambda route: settings.cluster(cluster_of(route, settings)))
    if not topics:
        refuse(f"app {app.name!r} has no handlers, so it parks nothing; declare one with @app.handler(topic)")
    chosen = [each for each in topics if wanted in (None, each.name)]
    if not chosen:
        refuse(f"{wanted!r} is no error topic of app {app.name!r}; it has: {', '.join(each.name for each in topics)}")
    return chosen
