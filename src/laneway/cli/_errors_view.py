"""How parked records are shown: escaped for a terminal, complete for programs."""

from __future__ import annotations

import base64
import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from laneway.admin import ParkedRecord

__all__ = [
    "as_json",
    "bytes_as_json",
    "header_text",
    "key_text",
    "page",
    "print_table",
    "safe",
    "time_text",
    "value_lines",
]

_VALUE, _HEX, _HEADER = 16_384, 1_024, 500  # bytes of a value as text or as hexadecimal, and of a header, on a page
_WIDE = 200  # columns where there is no terminal: a table in a log must not be cut


def safe(text: str, most: int) -> str:
    """Text of a record, escaped for a terminal.

    Control characters, line breaks and changes of writing direction become escapes, so a record can neither move the
    cursor nor imitate other output.
    """
    clean = text[:most]
    if not clean.isprintable():
        clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in clean)
    return f"{clean}…" if len(text) > most else clean


def key_text(key: bytes | None, most: int = 40) -> str:
    """A key as ``--key`` reads it, cut to *most* characters; ``-`` when there is none."""
    if key is None:
        return "-"
    if not key:
        return '""'
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    is_plain = text.isprintable() and not text.startswith("hex:") and text not in ("", "-", '""')
    return safe(text if is_plain else f"hex:{key.hex()}", most)


def time_text(time: datetime | None) -> str:
    """A time in UTC, which ``--since`` and ``--until`` read."""
    return "unknown" if time is None else f"{time:%Y-%m-%dT%H:%M:%SZ}"


def as_json(parked: ParkedRecord, *, is_open: bool) -> str:
    """Everything about a record in one line."""
    known = {
        "topic": parked.topic,
        "partition": parked.place.partition,
        "offset": parked.place.offset,
        "place": str(parked.place),
        "state": "open" if is_open else "done",
        "parked_at": None if parked.parked_at is None else parked.parked_at.isoformat(),
        "app": parked.app,
        "handler": parked.handler,
        "origin": {
            "topic": parked.origin_topic,
            "partition": parked.origin_partition,
            "offset": parked.origin_offset,
        },
        "attempts": parked.attempts,
        "errors": parked.errors,
        "error_type": parked.error_type,
        "error_message": parked.error_message,
        "error_trace": parked.error_trace,
        "reduced": parked.reduced,
        "timestamp": parked.timestamp,
        "key": bytes_as_json(parked.key),
        "value": bytes_as_json(parked.value),
        "headers": [{"name": name, "value": bytes_as_json(value)} for name, value in parked.headers],
    }
    # ASCII only, and DEL, the one control character that JSON lets through: the line may end on a terminal.
    return json.dumps(known).replace("\x7f", "\\u007f")


def bytes_as_json(value: bytes | None) -> dict[str, str] | None:
    """Bytes for JSON: as text if they are UTF-8, in base64 if not; None stays None."""
    if value is None:
        return None
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; a cell is text, never markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=name in ("place", "parked at", "count"), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # A new console each time, because Rich's own keeps the first stdout even when it is redirected later.
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE, highlight=False).print(table)


def page(parked: ParkedRecord, *, is_open: bool) -> Iterator[str]:
    """Everything about a record, as lines for a reader."""
    unknown = "unknown"
    origin = (parked.origin_partition, parked.origin_offset)
    where = ":".join(unknown if part is None else str(part) for part in origin)
    stamp = parked.timestamp
    known = {
        "place": f"{parked.place} on {parked.topic}, {'open' if is_open else 'done'}",
        "parked at": time_text(parked.parked_at),
        "app": safe(parked.app or unknown, 255),
        "handler": safe(parked.handler or unknown, 255),
        "origin": f"{safe(parked.origin_topic or unknown, 255)} {where}",
        "timestamp": f"{stamp} ({time_text(_as_time(stamp))})",
        "attempts": unknown if parked.attempts is None else f"{parked.attempts:,}",
        "times parked": unknown if parked.errors is None else f"{parked.errors:,}",
        "error": safe(parked.error_type or unknown, 500),
        "message": safe(parked.error_message or "", 2_000),
        "key": key_text(parked.key, 500),
    }
    if parked.reduced:
        left = (
            "the trace"
            if parked.reduced == "trace"
            else "the trace and the value: the whole record is on its source topic"
        )
        known["left out"] = f"{left}, because the copy would have been too large"
    for name, text in known.items():
        yield f"{name:<14}{text}"
    yield f"{'headers':<14}{len(parked.headers):,}"
    for name, value in parked.headers:
        if not name.startswith("laneway-error-"):  # shown in full above and below
            yield f"  {safe(name, 100)}: {header_text(value)}"
    yield "value"
    yield from (f"  {line}" for line in value_lines(parked.value))
    yield "trace"
    trace = parked.error_trace or "none"
    yield from (f"  {safe(line.expandtabs(4), 1_000)}" for line in trace.splitlines())


def _as_time(milliseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return None


def header_text(value: bytes | None) -> str:
    """A header's value for a terminal."""
    if value is None:
        return "null"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = f"hex:{value[:_HEADER].hex()}"
    more = f" ({len(value):,} bytes)" if len(value) > _HEADER else ""
    return safe(text, _HEADER) + more


def value_lines(value: bytes | None) -> Iterator[str]:
    """A value for a terminal: JSON with indents, text, or a hex dump."""
    if value is None:
        yield "null (a tombstone, or left out)"
        return
    yield f"{len(value):,} bytes"
    shown = _as_text(value)
    if shown is None:
        for start in range(0, min(len(value), _HEX), 16):
            line = value[start : start + 16]
            text = "".join(chr(c) if 32 <= c < 127 else "." for c in line)
            yield f"{start:08x}  {line.hex(' '):<47}  {text}"
        left = len(value) - _HEX
    else:
        yield from (safe(line.expandtabs(4), _VALUE) for line in shown[:_VALUE].splitlines())
        left = len(shown) - _VALUE
    if left > 0:
        yield f"… and {left:,} more; --json shows all"


def _as_text(value: bytes) -> str | None:
    """The value as text, JSON with indents; None when it is something else."""
    import msgspec

    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    if any(category(c) == "Cc" and c not in "\t\r\n" for c in text[:_VALUE]):
        return None
    if len(value) <= 16 * _VALUE and text.lstrip()[:1] in ("{", "["):
        try:
            # Indented as text, not parsed and dumped: duplicate names and unusual numbers stay as they are.
            return msgspec.json.format(value, indent=2).decode()
        except (msgspec.DecodeError, RecursionError):
            return text
    return text
