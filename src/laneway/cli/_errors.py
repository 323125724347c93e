"""``laneway errors``: list, show, replay and drop parked records."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from laneway.cli import _errors_run
from laneway.cli._errors_view import as_json, page
from laneway.cli._options import BrokersOption, ConfigOption, ProfileOption, TargetArgument, grouped

if TYPE_CHECKING:
    from laneway.admin import ErrorTopic, Filter

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, rerun, replay and drop parked records. A parked record stays open until it is handled, replayed"
    " or dropped.",
)
app.command("run")(_errors_run.run)

Json = Annotated[bool, typer.Option("--json", help="Print one complete JSON object per line.")]
Most = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most this many records, beginning with the first.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; write nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True)
class Source:
    """Whose error topics."""

    target: TargetArgument
    topic: Annotated[str | None, typer.Option("--topic", help="Only this error topic, when the app has several.")] = (
        None
    )
    config: ConfigOption = None
    profile: ProfileOption = "default"
    brokers: BrokersOption = None

    def topics(self) -> list[ErrorTopic]:
        """The error topics, under the names that the configuration gives them."""
        from laneway._runtime.configure import cluster_of, configured
        from laneway.admin import error_topics_of
        from laneway.cli._errors_redrive import refuse
        from laneway.cli._run import loaded
        from laneway.cli._target import find_app

        for output in (sys.stdout, sys.stderr):
            if hasattr(output, "reconfigure"):
                output.reconfigure(errors="backslashreplace")  # a record may have text that the terminal cannot show
        settings = loaded(self.config, self.profile, {"brokers": self.brokers})
        found = configured(find_app(self.target), settings)
        topics = error_topics_of(found, lambda route: settings.cluster(cluster_of(route, settings)))
        if not topics:
            refuse(f"app {found.name!r} has no handlers, so it parks nothing; declare one with @app.handler(topic)")
        chosen = [each for each in topics if self.topic in (None, each.name)]
        if not chosen:
            names = ", ".join(each.name for each in topics)
            refuse(f"{self.topic!r} is no error topic of app {found.name!r}; it has: {names}")
        return chosen


@dataclass(frozen=True, slots=True)
class Selection:
    """Which parked records."""

    error_type: Annotated[
        str | None, typer.Option("--type", help="Only this type of error; * and ? are wildcards: 'json.*'.")
    ] = None
    message: Annotated[
        str | None, typer.Option("--message", help="Only errors whose message contains this text, in any case.")
    ] = None
    since: Annotated[
        str | None, typer.Option("--since", help="Only parked since then: 2h (ago), 2026-01-31 or 2026-01-31T08:00Z.")
    ] = None
    until: Annotated[str | None, typer.Option("--until", help="Only parked before then; format as for --since.")] = None
    key: Annotated[str | None, typer.Option("--key", help="Only this key: text, or hex:00ff.")] = None
    handler: Annotated[str | None, typer.Option("--handler", help="Only records that this handler failed on.")] = None
    origin: Annotated[str | None, typer.Option("--origin", help="Only records from this topic.")] = None
    at: Annotated[
        list[str] | None, typer.Option("--at", metavar="PLACE", help="Only this record, such as 0:17. Repeatable.")
    ] = None

    def filter(self) -> Filter:
        """These options as a filter; ends the command when one is wrong."""
        from laneway.admin import Filter, FilterError
        from laneway.cli._errors_redrive import refuse

        try:
            return Filter.parse(
                now=datetime.now(UTC),
                error_type=self.error_type,
                message=self.message,
                since=self.since,
                until=self.until,
                key=self.key,
                handler=self.handler,
                origin=self.origin,
                places=self.at or (),
            )
        except FilterError as error:
            refuse(str(error))


@app.command("list")
@grouped
def list_(
    source: Source,
    selection: Selection,
    everything: Annotated[bool, typer.Option("--all", help="Also records that are no longer open.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="At most this many, the newest. [default: 50; with --json all]"),
    ] = None,
    by_type: Annotated[bool, typer.Option("--by-type", help="Count the types of error instead.")] = False,
    as_lines: Json = False,
) -> None:
    """List open parked records, the newest last."""
    from laneway.cli._errors_list import Question, list_topic

    question = Question(
        source.target, selection.filter(), limit, everything=everything, by_type=by_type, as_lines=as_lines
    )
    for each in source.topics():
        list_topic(each, question)


@app.command()
@grouped
def show(
    source: Source,
    place: Annotated[str, typer.Argument(metavar="PLACE", help="The record, as the list names it: 0:17.")],
    as_lines: Json = False,
) -> None:
    """Show everything about one parked record: error, headers and value."""
    from laneway.admin import ErrorLog, Position
    from laneway.cli._errors_redrive import refuse
    from laneway.errors import LanewayError

    try:
        wanted = Position.parse(place)
    except ValueError as error:
        refuse(str(error))
    topics = source.topics()
    if len(topics) > 1:
        refuse(f"the app has several error topics; add --topic {' or --topic '.join(each.name for each in topics)}")
    with ErrorLog(topics[0]) as log:
        extents = log.extents()
        parked = log.find(wanted, extents)
        if parked is None:
            raise LanewayError(
                f"there is no record at {wanted} on {log.topic.name}; `laneway errors list {source.target} --all` lists"
                " all records"
            )
        is_open = wanted.offset >= extents[wanted.partition].open
    for line in (as_json(parked, is_open=is_open),) if as_lines else page(parked, is_open=is_open):
        typer.echo(line)


@app.command()
@grouped
def replay(
    source: Source,
    selection: Selection,
    to: Annotated[str | None, typer.Option(metavar="TOPIC", help="Send them to this topic instead.")] = None,
    rate: Annotated[int, typer.Option(min=0, help="Records per second; 0 means no limit.")] = 100,
    limit: Most = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Send open records back to the topic they came from, unchanged. Selects all open records unless you filter.

    A record is done once the brokers have acknowledged it. Exit codes: 0 done, 1 some records are still open, 2 wrong
    usage, 130 interrupted; an interruption loses nothing.
    """
    from laneway.cli._errors_redrive import Request, carry_out

    request = Request("replay", selection.filter(), limit, is_dry=dry_run, is_sure=yes, to=to, rate=rate)
    carry_out(source.topics(), request)


@app.command()
@grouped
def drop(
    source: Source,
    selection: Selection,
    limit: Most = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Mark parked records as done without replaying them. Selects all open records unless you filter.

    They stay on the error topic until its retention removes them, and `list --all` shows them. Exit codes are those of
    replay.
    """
    from laneway.cli._errors_redrive import Request, carry_out

    request = Request("drop", selection.filter(), limit, is_dry=dry_run, is_sure=yes)
    carry_out(source.topics(), request)
