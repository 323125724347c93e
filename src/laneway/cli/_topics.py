"""``laneway topics``: list, describe, create and delete topics."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laneway.cli._errors_redrive import refuse
from laneway.cli._errors_view import print_table, safe
from laneway.cli._options import BrokersOption, ClusterOption, ConfigOption, JsonOption, ProfileOption, grouped

if TYPE_CHECKING:
    from laneway._kafka import Admin
    from laneway.settings import ClusterSettings, Settings

__all__ = ["Connection", "app", "pairs", "require_topic"]

app = typer.Typer(no_args_is_help=True, help="List, describe, create and delete topics.")

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name on the brokers.")]


@dataclass(frozen=True, slots=True)
class Connection:
    """Which brokers."""

    cluster: ClusterOption = None
    config: ConfigOption = None
    profile: ProfileOption = "default"
    brokers: BrokersOption = None

    def settings(self) -> Settings:
        """The configuration; ends the command when it has no such cluster."""
        from laneway.cli._run import loaded

        settings = loaded(self.config, self.profile, {"brokers": self.brokers})
        if self.cluster is not None and self.cluster not in settings.clusters:
            refuse(f"there is no cluster {self.cluster!r}; the configuration has: {', '.join(settings.clusters)}")
        return settings

    def chosen(self) -> ClusterSettings:
        """The cluster."""
        return self.settings().cluster(self.cluster)

    def admin(self) -> Admin:
        """A client for requests about topics."""
        from laneway._kafka import Admin

        return Admin(self.chosen().client_options())


@app.command("list")
@grouped
def list_topics(
    connection: Connection,
    internal: Annotated[bool, typer.Option("--internal", help="Also topics whose names begin with two _.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List topics with their numbers of partitions."""
    found = {name: count for name, count in connection.admin().topics().items() if internal or name[:2] != "__"}
    if as_json:
        typer.echo(json.dumps([{"topic": name, "partitions": found[name]} for name in sorted(found)]))
        return
    if found:
        print_table(("topic", "partitions"), [(safe(name, 249), f"{found[name]:,}") for name in sorted(found)])
    typer.echo(f"{len(found):,} topic{'' if len(found) == 1 else 's'}")


@app.command()
@grouped
def describe(connection: Connection, topic: TopicArgument, as_json: JsonOption = False) -> None:
    """Show the partitions of a topic, the offsets of their logs, and options that differ from the defaults."""
    admin = connection.admin()
    require_topic(admin, topic)
    layout, config, trouble = admin.layout(topic), admin.changed_config(topic), admin.trouble(topic)
    starts, ends = admin.starts(topic, list(layout)), admin.ends(topic, list(layout))
    rows: list[dict[str, Any]] = [
        {"partition": number, **part._asdict(), "start": starts[number], "end": ends[number]}
        for number, part in layout.items()
    ]
    if as_json:
        typer.echo(json.dumps({"topic": topic, "trouble": trouble, "config": config, "partitions": rows}))
        return
    shown = [
        (str(row["partition"]), str(row["leader"]), _ids(row["replicas"]), _ids(row["in_sync"]),
         f"{row['start']:,}", f"{row['end']:,}")
        for row in rows
    ]  # fmt: skip
    print_table(("partition", "leader", "replicas", "in sync", "start", "end"), shown)
    for name, value in config.items():
        typer.echo(f"{name} = {safe(value, 200)}")
    total = sum(row["end"] - row["start"] for row in rows)
    typer.echo(f"{topic}: {len(rows)} partition{'' if len(rows) == 1 else 's'}, at most {total:,} records")
    if trouble:
        typer.echo(f"trouble: {trouble}")


@app.command()
@grouped
def create(
    connection: Connection,
    topic: TopicArgument,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="How many partitions.")] = 1,
    replicas: Annotated[
        int | None, typer.Option("--replicas", min=1, help="How many replicas. [default: as the brokers say]")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="An option of the topic. Repeatable.")
    ] = None,
) -> None:
    """Create a topic. A topic that exists already is an error, and stays as it is."""
    from laneway._declare.record import Topic
    from laneway.errors import AdminError

    Topic(topic)  # refuses names that Kafka would refuse
    config = dict(pairs("--option", option or []))
    admin = connection.admin()
    if not admin.create(topic, partitions, config=config, replicas=replicas or -1):
        raise AdminError(f"topic {topic} exists already; laneway topics describe {topic} shows it")
    typer.echo(f"created topic {topic} with {partitions} partition{'' if partitions == 1 else 's'}")


@app.command()
@grouped
def delete(
    connection: Connection,
    topic: TopicArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a topic and all of its records."""
    admin = connection.admin()
    require_topic(admin, topic)
    if not yes:
        count = sum(admin.ends(topic, numbers := admin.partitions(topic)).values()) - sum(
            admin.starts(topic, numbers).values()
        )
        typer.confirm(f"Delete topic {topic} with up to {count:,} records?", abort=True)
    admin.delete(topic)
    typer.echo(f"deleted topic {topic}")


def pairs(flag: str, given: list[str]) -> list[tuple[str, str]]:
    """Options of the form NAME=VALUE; ends the command when one is not."""
    for text in given:
        if "=" not in text or text.startswith("="):
            refuse(f"{flag} {text!r} is not NAME=VALUE")
    return [(name, value) for name, _, value in (text.partition("=") for text in given)]


def require_topic(admin: Admin, topic: str) -> None:
    """End the command when there is no such topic."""
    from laneway.errors import AdminError

    known = admin.topics()  # of all topics: to ask for one may create it
    if topic not in known:
        from difflib import get_close_matches

        near = get_close_matches(topic, known, 1)
        raise AdminError(
            f"there is no topic {topic!r}" + (f"; did you mean {near[0]}?" if near else "; laneway topics list")
        )


def _ids(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids))
