"""The log level of librdkafka's own lines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["quiet"]

_CRITICAL = 2  # syslog level; above it librdkafka fills stderr with lines about connections that it restores by itself


def quiet(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that silence librdkafka's log, unless the options or ``LANEWAY_DEBUG`` ask for more.

    Laneway itself reports brokers that are unavailable: in its state, health, log and errors.
    """
    return dict(options) if os.environ.get("LANEWAY_DEBUG") else {"log_level": _CRITICAL, **options}
