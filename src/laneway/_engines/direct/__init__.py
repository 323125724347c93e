"""The direct engine: a consumer group's member in this process, with the same processors as on Spark."""

from laneway._engines.direct.engine import DirectEngine

__all__ = ["DirectEngine"]
