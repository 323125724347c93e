"""``laneway consume``: look at the records of a topic."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laneway.cli._errors_redrive import refuse
from laneway.cli._errors_view import bytes_as_json, header_text, key_text, safe, value_lines
from laneway.cli._options import JsonOption, grouped
from laneway.cli._topics import Connection, pairs, require_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laneway._declare.record import Record
    from laneway._kafka import Admin
    from laneway.codecs import Codec
    from laneway.settings import ClusterSettings

__all__ = ["consume"]

_WAIT = 0.2  # seconds between looks for new records, and of one fetch
_CHUNK = 500  # records fetched at once


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records."""

    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="Where to begin: earliest, latest, an offset (42), an age (2h), or a time (2026-01-31T08:00Z).",
        ),
    ] = "earliest"
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition.")] = None
    key: Annotated[str | None, typer.Option("--key", help="Only this key: text, or hex:00ff.")] = None
    contains: Annotated[
        str | None, typer.Option("--contains", metavar="TEXT", help="Only values that contain this text.")
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where", metavar="PATH=VALUE", help="Only JSON values with this field: customer.id=42. Repeatable."
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="Only records with this header. Repeatable."),
    ] = None

    def matches(self, record: Record[Any]) -> bool:
        """Whether a record is wanted."""
        from laneway.cli._produce import key_of

        if self.key is not None and record.key != key_of(self.key):
            return False
        if self.contains is not None and self.contains.encode() not in (record.raw or b""):
            return False
        for name, text in pairs("--header", self.header or []):
            if (name, text.encode()) not in [(found, value) for found, value in record.headers]:
                return False
        return all(_has(record.raw, path, text) for path, text in pairs("--where", self.where or []))

    def starts(self, admin: Admin, topic: str, partitions: list[int]) -> dict[int, int]:
        """The first offset of each partition; ends the command when the option is wrong."""
        firsts, ends = admin.starts(topic, partitions), admin.ends(topic, partitions)
        if self.begin in ("earliest", "latest"):
            return firsts if self.begin == "earliest" else ends
        if self.begin.isdecimal():
            return {number: min(max(int(self.begin), firsts[number]), ends[number]) for number in partitions}
        since = round(_moment(self.begin).timestamp() * 1000)
        found = admin.first_since({(topic, number): since for number in partitions})
        return {number: ends[number] if at is None else at for (_, number), at in found.items()}


@grouped
def consume(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic: its name in the configuration, or on the brokers.")
    ],
    connection: Connection,
    wanted: Wanted,
    most: Annotated[int | None, typer.Option("--max", min=1, help="End after this many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new records until Ctrl-C.")] = False,
    app: Annotated[
        str | None,
        typer.Option(
            "--app", metavar="MODULE:APP", help="Decode values with the codec that this app has for the topic."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the records of a topic. No group is joined and nothing is committed.

    With --json each record is one line, which `laneway produce --format record` reads. A value that cannot be decoded
    is shown as it is.
    """
    from laneway._kafka import Admin

    for output in (sys.stdout, sys.stderr):
        if hasattr(output, "reconfigure"):
            output.reconfigure(errors="backslashreplace")  # a record may have text that the terminal cannot show
    _check(wanted)
    name, cluster = _place(topic, connection)
    codec = None if app is None else _codec_of(app, topic)
    admin = Admin(cluster.client_options())
    require_topic(admin, name)
    count = 0
    try:
        for record in _records(admin, cluster, name, wanted, follow=follow):
            if not wanted.matches(record):
                continue
            count += 1
            for line in [_as_json(record, codec)] if as_json else _page(record, codec):
                typer.echo(line)
            if count == most:
                break
    except KeyboardInterrupt:
        pass
    if not as_json:
        typer.echo(f"{count:,} record{'' if count == 1 else 's'} of {name}", err=True)


def _records(
    admin: Admin, cluster: ClusterSettings, topic: str, wanted: Wanted, *, follow: bool
) -> Iterator[Record[Any]]:
    """The records up to the ends that the logs have now, and with *follow* those that come later."""
    from laneway._kafka import AssignedConsumer, OffsetRange

    position: dict[int, int] = {}
    reader = AssignedConsumer(cluster.consumer_options(), skip_lost=True)
    try:
        while True:
            known = admin.partitions(topic)
            numbers = [number for number in known if wanted.partition in (None, number)]
            if not numbers:
                refuse(f"topic {topic} has no partition {wanted.partition}; it has 0 to {len(known) - 1}")
            new = [number for number in numbers if number not in position]
            if new:
                position |= admin.starts(topic, new) if position else wanted.starts(admin, topic, new)
            ends = admin.ends(topic, numbers)
            reader.open([OffsetRange(topic, number, position[number], ends[number]) for number in numbers])
            while not reader.is_exhausted:
                yield from reader.fetch(_CHUNK, _WAIT)
            position = {number: max(position[number], ends[number]) for number in numbers}
            if not follow:
                return
            time.sleep(_WAIT)
    finally:
        reader.close()


def _check(wanted: Wanted) -> None:
    """End the command when an option is wrong, before any broker is asked."""
    from laneway.cli._produce import key_of

    pairs("--where", wanted.where or [])
    pairs("--header", wanted.header or [])
    if wanted.key is not None:
        key_of(wanted.key)
    if wanted.begin not in ("earliest", "latest") and not wanted.begin.isdecimal():
        _moment(wanted.begin)


def _place(topic: str, connection: Connection) -> tuple[str, ClusterSettings]:
    """Name and cluster of a topic, as the configuration has it for handlers."""
    settings = connection.settings()
    listed = settings.topics.get(topic)
    if listed is None:
        return topic, settings.cluster(connection.cluster)
    return listed.name, settings.cluster(connection.cluster or listed.cluster)


def _codec_of(target: str, topic: str) -> Codec[Any]:
    from laneway.cli._target import find_app

    app = find_app(target)
    topics = {route.topic.name: route.topic for route in app.routes}
    if topic not in topics:
        refuse(f"no handler of app {app.name!r} reads topic {topic!r}; they read: {', '.join(topics) or 'none'}")
    return topics[topic].value


def _moment(text: str) -> datetime:
    from laneway.admin import FilterError, time_of

    try:
        return time_of("--from", text, datetime.now(UTC))
    except FilterError as error:
        refuse(f"{error}; or write earliest, latest or an offset")


def _decoded(record: Record[Any], codec: Codec[Any] | None) -> bytes | None:
    """The value as bytes of JSON if a codec can read it, else as it is."""
    import msgspec

    from laneway.codecs import Framed

    if codec is None or record.raw is None:
        return record.raw
    try:
        if isinstance(codec, Framed) and codec.reads_headers:
            value = codec.decode_with(record.raw, record.headers)
        else:
            value = codec.decode(record.raw)
        return value if isinstance(value, bytes) else msgspec.json.encode(value, enc_hook=repr)
    except Exception as error:  # noqa: BLE001 - a codec is user code
        typer.echo(f"offset {record.partition}:{record.offset} cannot be decoded: {safe(str(error), 200)}", err=True)
        return record.raw


def _as_json(record: Record[Any], codec: Codec[Any] | None) -> str:
    known = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": bytes_as_json(record.key),
        "value": bytes_as_json(_decoded(record, codec)),
        "headers": [{"name": name, "value": bytes_as_json(value)} for name, value in record.headers],
    }
    # ASCII only, and DEL, the one control character that JSON lets through: the line may end on a terminal.
    return json.dumps(known).replace("\x7f", "\\u007f")


def _page(record: Record[Any], codec: Codec[Any] | None) -> Iterator[str]:
    yield (
        f"{record.partition}:{record.offset}  {record.time:%Y-%m-%dT%H:%M:%S.%f}"[:-3]
        + f"Z  key {key_text(record.key, 200)}"
    )
    for name, value in record.headers:
        yield f"  {safe(name, 100)}: {header_text(value)}"
    yield from (f"    {line}" for line in value_lines(_decoded(record, codec)))


def _has(raw: bytes | None, path: str, text: str) -> bool:
    try:
        value = json.loads(raw or b"")
    except ValueError:
        return False
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return text == (value if isinstance(value, str) else json.dumps(value))
