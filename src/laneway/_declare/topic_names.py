"""Names of retry and error topics."""

from __future__ import annotations

from string import Formatter

from laneway.errors import DeclarationError

__all__ = ["ERROR_PATTERN", "RETRY_PATTERN", "error_topic_name", "topic_name"]

ERROR_PATTERN = "{topic}.{app}.error"
"""One per source topic and app, so that apps never read each other's failures."""
RETRY_PATTERN = "{topic}.{app}.retry.{step}"
"""One per source topic, app and step."""
_FIELDS = ("topic", "app", "handler", "step")


def topic_name(pattern: str, *, topic: str, app: str, handler: str = "", step: int = 0) -> str:
    """Format a pattern with ``{topic}``, ``{app}``, ``{handler}`` and ``{step}``.

    Example:
        >>> topic_name("{topic}.{app}.retry.{step}", topic="orders", app="billing", step=2)
        'orders.billing.retry.2'
    """
    try:
        parts = [part for part in Formatter().parse(pattern) if part[1] is not None]
    except ValueError as error:
        raise DeclarationError(f"{pattern!r} is not a pattern of a topic's name: {error}") from error
    for _, name, form, conversion in parts:
        if name not in _FIELDS or conversion or "{" in (form or ""):
            known = ", ".join(f"{{{field}}}" for field in _FIELDS)
            raise DeclarationError(f"{pattern!r}: there is no {{{name}}}; a topic's name may use {known}")
    try:
        return pattern.format(topic=topic, app=app, handler=handler, step=step)
    except ValueError as error:
        raise DeclarationError(f"{pattern!r} is not a pattern of a topic's name: {error}") from error


def error_topic_name(topic: str, app: str) -> str:
    """Name of the error topic by the default pattern."""
    return topic_name(ERROR_PATTERN, topic=topic, app=app)
