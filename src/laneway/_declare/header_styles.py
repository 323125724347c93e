"""Header names of other systems for parked records."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from laneway._core.headers import Failure
    from laneway._declare.record import Headers

__all__ = ["STYLES", "Style", "is_of_style", "styled"]

Style = Literal["laneway", "spring", "connect"]
"""Systems whose header names a parked copy can have in addition to laneway's."""
STYLES: tuple[Style, ...] = ("laneway", "spring", "connect")

_PREFIXES: dict[Style, str] = {"spring": "kafka_dlt-", "connect": "__connect.errors."}


def is_of_style(name: str, style: Style) -> bool:
    """Whether *style* writes this header, and so replaces it."""
    return style in _PREFIXES and name.startswith(_PREFIXES[style])


def styled(style: Style, place: tuple[str, int, int, int], failure: Failure, *, app: str, handler: str) -> Headers:
    """The headers of a style. Numbers are binary for Spring, text for Kafka Connect."""
    topic, partition, offset, timestamp = place
    if style == "spring":
        return [
            ("kafka_dlt-original-topic", _as_bytes(topic)),
            ("kafka_dlt-original-partition", struct.pack(">i", partition)),
            ("kafka_dlt-original-offset", struct.pack(">q", offset)),
            ("kafka_dlt-original-timestamp", struct.pack(">q", timestamp)),
            ("kafka_dlt-original-timestamp-type", b"CreateTime"),
            ("kafka_dlt-original-consumer-group", _as_bytes(app)),
            ("kafka_dlt-exception-fqcn", _as_bytes(failure.type)),
            ("kafka_dlt-exception-message", _as_bytes(failure.message)),
            ("kafka_dlt-exception-stacktrace", _as_bytes(failure.trace)),
        ]
    if style == "connect":
        return [
            ("__connect.errors.topic", _as_bytes(topic)),
            ("__connect.errors.partition", str(partition).encode()),
            ("__connect.errors.offset", str(offset).encode()),
            ("__connect.errors.connector.name", _as_bytes(app)),
            ("__connect.errors.task.id", b"0"),
            ("__connect.errors.stage", b"TASK_PUT"),
            ("__connect.errors.class.name", _as_bytes(handler)),
            ("__connect.errors.exception.class.name", _as_bytes(failure.type)),
            ("__connect.errors.exception.message", _as_bytes(failure.message)),
            ("__connect.errors.exception.stacktrace", _as_bytes(failure.trace)),
        ]
    return []


def _as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
