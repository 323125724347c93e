"""The Spark engine: Spark plans, checkpoints and schedules; each task reads its offsets and runs the handlers."""

from laneway.engines.spark._archive import archive_path, build_archive
from laneway.engines.spark._engine import RunReport, SparkEngine
from laneway.engines.spark._setting import lag_of

__all__ = ["RunReport", "SparkEngine", "archive_path", "build_archive", "lag_of"]
