"""The Spark engine: Spark plans, checkpoints and schedules; each task reads its offsets and runs the handlers."""

from laneway.engines._report import RunReport
from laneway.engines._topics import lag_of
from laneway.engines.spark._archive import archive_path, build_archive
from laneway.engines.spark._engine import SparkEngine

__all__ = ["RunReport", "SparkEngine", "archive_path", "build_archive", "lag_of"]
