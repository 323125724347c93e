"""Engines: where an app runs."""

from laneway.engines._topics import lag_of

__all__ = ["lag_of"]
