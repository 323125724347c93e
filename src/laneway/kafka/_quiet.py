"""librdkafka's own log lines, kept for debugging."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["quiet"]

_ERRORS = 3  # syslog level; at its default librdkafka tells on stderr of every connection it mends by itself


def quiet(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with a log level that shows errors only, unless the options or ``LANEWAY_DEBUG`` ask for more."""
    return dict(options) if os.environ.get("LANEWAY_DEBUG") else {"log_level": _ERRORS, **options}
