"""The Spark engine: Spark plans, checkpoints and schedules; each task reads its offsets and runs the handlers."""

from laneway.engines.spark._engine import RunReport, SparkEngine

__all__ = ["RunReport", "SparkEngine", "lag_of"]


def __getattr__(name: str) -> object:
    """What needs the settings is loaded when it is used."""
    if name == "lag_of":
        from laneway.engines.spark._setting import lag_of

        return lag_of
    raise AttributeError(name)
