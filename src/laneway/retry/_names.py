"""Names of the topics beside a source topic."""

from __future__ import annotations

__all__ = ["error_topic_name"]


def error_topic_name(topic: str, app: str) -> str:
    """Name of the error topic: one per source topic and app, so two apps never read each other's failures."""
    return f"{topic}.{app}.error"
