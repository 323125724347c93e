"""``laneway produce``: messages from stdin or a file."""

from __future__ import annotations

import base64
import json
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - Typer evaluates it
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from laneway.cli._errors_redrive import refuse
from laneway.cli._errors_view import safe
from laneway.cli._options import grouped
from laneway.cli._topics import Connection, pairs
from laneway.errors import LanewayError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laneway._declare.record import Headers, Message, Topic

__all__ = ["InputError", "key_of", "produce"]

_STEPS = 200  # slices per second in which a rate is kept
_SHOWN = 1_000  # messages between two updates of the progress


class InputError(LanewayError):
    """A line of the input is wrong; the message says which and why."""


class Format(StrEnum):
    """What a line is."""

    TEXT = "text"
    JSON = "json"
    RECORD = "record"


@dataclass(frozen=True, slots=True)
class Making:
    """How a line becomes a message."""

    line_format: Annotated[
        Format,
        typer.Option(
            "--format",
            help="What a line is: the value as text, a value that must be JSON, or a record as `laneway consume --json`"
            " prints it.",
        ),
    ] = Format.TEXT
    key: Annotated[str | None, typer.Option("--key", help="The key of all messages: text, or hex:00ff.")] = None
    key_field: Annotated[
        str | None,
        typer.Option("--key-field", metavar="PATH", help="The field of the JSON value with the key: customer.id."),
    ] = None
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="A header of all messages. Repeatable.")
    ] = None
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="The partition of all messages. [default: by key]")
    ] = None

    def messages(self, topic: Topic[bytes], lines: Iterable[bytes]) -> Iterator[Message[bytes]]:
        """A message for each line that is not empty.

        Raises:
            InputError: a line is wrong.
        """
        headers: Headers = [(name, value.encode()) for name, value in pairs("--header", self.header or [])]
        fixed = None if self.key is None else key_of(self.key)
        path = None if self.key_field is None else self.key_field.split(".")
        for number, line in enumerate(lines, 1):
            text = line.rstrip(b"\r\n")
            if not text:
                continue
            try:
                yield self._message(topic, text, headers, fixed, path)
            except (ValueError, KeyError, TypeError) as error:
                reason = f"{safe(str(error), 200)}: {safe(text.decode(errors='replace'), 80)}"
                raise InputError(f"line {number:,}: {reason}") from error

    def _message(
        self, topic: Topic[bytes], text: bytes, headers: Headers, key: bytes | None, path: list[str] | None
    ) -> Message[bytes]:
        if self.line_format is Format.RECORD:
            fields = json.loads(text)
            if not isinstance(fields, dict) or "value" not in fields:
                raise ValueError("it is no record with a value, as `laneway consume --json` prints it")
            own = [(item["name"], _bytes(item["value"])) for item in fields.get("headers", [])]
            own_key = _bytes(fields.get("key")) if key is None else key
            return topic.message(
                _bytes(fields["value"]), key=own_key, headers=[*own, *headers], partition=self.partition,
                timestamp=fields.get("timestamp"),
            )  # fmt: skip
        if self.line_format is Format.JSON or path:
            value = _parsed(text)
            if path:
                key = _field(value, path)
        return topic.message(text, key=key, headers=headers, partition=self.partition)


@grouped
def produce(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic: its name in the configuration, or on the brokers.")
    ],
    connection: Connection,
    making: Making,
    file: Annotated[
        Path | None, typer.Option("--file", help="Read lines from this file. [default: standard input]")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="Messages per second. [default: no limit]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing unless something is wrong.")] = False,
) -> None:
    """Send each line of the input as a message, and wait until all are written.

    A configured topic is written as `producers` and `topics` say. Exit codes: 0 all written, 1 not all written or a
    wrong line, 2 wrong usage or configuration. A wrong line ends the command; the lines before it are written.
    """
    from laneway._declare.record import Topic
    from laneway.errors import ProduceError
    from laneway.producer import Producer

    if making.key is not None and making.key_field is not None:
        refuse("give --key or --key-field, not both")
    if making.line_format is Format.RECORD and making.key_field is not None:
        refuse("--format record has the keys in its lines; remove --key-field")
    pairs("--header", making.header or [])
    if making.key is not None:
        key_of(making.key)
    settings = connection.settings()
    if connection.cluster is not None:
        settings = settings.with_overrides({"cluster": connection.cluster})
    target: Topic[bytes] = Topic(topic)
    with _opened(file) as source, Producer(settings, topics=[target]) as producer:
        total = None
        if file is not None and file.is_file():
            total = sum(1 for _ in source)
            source.seek(0)
        messages = making.messages(target, source)
        delivery = producer.produce_all(_shown(_paced(messages, rate), topic, total, quiet=quiet))
        try:
            written = delivery.result()
        except ProduceError as error:
            if isinstance(error.__cause__, InputError):
                raise InputError(
                    f"{error.__cause__} ({producer.counts.acknowledged:,} messages are written)"
                ) from error
            raise
    if not quiet:
        typer.echo(f"produced {written:,} message{'' if written == 1 else 's'} to {topic}")


@contextmanager
def _opened(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        if sys.stdin.isatty():
            typer.echo("type a message per line; Ctrl-D ends", err=True)
        with nullcontext(sys.stdin.buffer) as source:
            yield source
        return
    try:
        source = file.open("rb")
    except OSError as error:
        refuse(f"{file} cannot be read: {error.strerror}")
    with source:
        yield source


def _paced(messages: Iterable[Message[bytes]], rate: float | None) -> Iterator[Message[bytes]]:
    """Keep a rate, in small slices rather than in bursts."""
    began, every = time.monotonic(), max(1, int((rate or 1) / _STEPS))
    for count, message in enumerate(messages):
        if rate is not None and count % every == 0:
            time.sleep(max(0.0, began + count / rate - time.monotonic()))
        yield message


def _shown(
    messages: Iterable[Message[bytes]], topic: str, total: int | None, *, quiet: bool
) -> Iterator[Message[bytes]]:
    """Show on a terminal how far the work is."""
    if quiet or not sys.stderr.isatty() or (total is None and sys.stdin.isatty()):
        yield from messages
        return
    from laneway.cli._progress import progress_bar

    with progress_bar(topic, sys.stderr) as show:
        for count, message in enumerate(messages):
            if count % _SHOWN == 0:
                show("producing to", count, total)
            yield message


def key_of(text: str) -> bytes:
    """A key as ``--key`` has it; ends the command when it is wrong."""
    from laneway import admin

    try:
        return admin.key_of(text)
    except admin.FilterError as error:
        refuse(str(error))


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None


def _field(value: Any, path: list[str]) -> bytes:
    for name in path:
        if not isinstance(value, dict) or name not in value:
            raise ValueError(f"it has no field {'.'.join(path)}")
        value = value[name]
    if value is None or isinstance(value, (dict, list)):
        raise ValueError(f"field {'.'.join(path)} is {json.dumps(value)[:40]}, and a key is a text or a number")
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _bytes(value: Any) -> bytes | None:
    """What `laneway consume --json` has printed as text, as base64 or as null."""
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    if not isinstance(value, dict) or value.keys() - {"text", "base64"} or len(value) != 1:
        raise ValueError('a key, value or header is null, {"text": ...} or {"base64": ...}')
    return value["text"].encode() if "text" in value else base64.b64decode(value["base64"], validate=True)
