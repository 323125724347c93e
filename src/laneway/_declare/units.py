"""Durations and sizes as users write them. The only place that parses units."""

from __future__ import annotations

import re
from datetime import timedelta

__all__ = ["Duration", "Size", "as_duration", "as_size", "in_words"]

Duration = str | timedelta
"""``"100ms"``, ``"5s"``, ``"1m30s"``, ``"2h"``, ``"1d"`` or a `timedelta`."""

Size = str | int
"""``"64KiB"``, ``"16MiB"``, ``"1MB"`` or a number of bytes."""

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_LONGEST = 36_500 * 86400.0  # a hundred years; a longer one is more likely a mistake
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)")
_WHOLE = re.compile(rf"^\s*(?:{_PART.pattern}\s*)+$")
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*$", re.IGNORECASE)


def as_duration(value: object) -> timedelta:
    """Parse a duration; a bare number is refused because its unit is unknown.

    Raises:
        ValueError: the message names the accepted forms.
    """
    if isinstance(value, timedelta):
        result = value
    elif isinstance(value, str) and _WHOLE.match(value):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(value))
        if seconds > _LONGEST:
            raise ValueError(f"{value!r} is out of range; write no more than '{_LONGEST / _SECONDS['d']:.0f}d'")
        result = timedelta(seconds=seconds)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"{value!r} has no unit; write for example '{value}s' or '{value}ms'")
    else:
        raise ValueError(f"{value!r} is not a duration; write for example '100ms', '5s', '1m30s' or '2h'")
    if result < timedelta(0):
        raise ValueError(f"{value!r} is negative; a duration is zero or more")
    return result


def as_size(value: object) -> int:
    """Parse a size in bytes.

    Raises:
        ValueError: the message names the accepted forms.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"{value!r} is negative; a size is zero or more")
        return value
    match = _SIZE.match(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in _BYTES:
        raise ValueError(f"{value!r} is not a size; write for example '64KiB', '16MiB' or a number of bytes")
    return int(float(match[1]) * _BYTES[match[2].lower()])


def in_words(duration: timedelta) -> str:
    """Format a duration as `as_duration` parses it: ``1m30s``, ``250ms``."""
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{round(seconds * 1000, 3):.10g}ms"
    parts = []
    for unit in ("d", "h", "m"):
        count, seconds = divmod(seconds, _SECONDS[unit])
        if count:
            parts.append(f"{count:.0f}{unit}")
    if seconds or not parts:
        parts.append(f"{round(seconds, 6):.10g}s")
    return "".join(parts)
