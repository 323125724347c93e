"""Engines: where an app runs."""

from laneway.engines._chosen import default_engine, engine_of
from laneway.engines._topics import lag_of

__all__ = ["default_engine", "engine_of", "lag_of"]
