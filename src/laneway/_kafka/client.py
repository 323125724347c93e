"""librdkafka's own log lines, kept for debugging."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["quiet"]

_CRITICAL = 2  # syslog level; above it librdkafka tells on stderr, again and again, of connections it mends by itself


def quiet(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with a log level that shows next to nothing, unless the options or ``LANEWAY_DEBUG`` ask for more.

    What a user should know of a broker that is away is said in laneway's own words: state, health, errors.
    """
    return dict(options) if os.environ.get("LANEWAY_DEBUG") else {"log_level": _CRITICAL, **options}
