"""The Spark engine: Spark plans, checkpoints and schedules; each task reads its offsets and runs the handlers."""

from laneway._engines.spark.class_archive import archive_path, build_archive
from laneway._engines.spark.engine import SparkEngine
from laneway._runtime.report import RunReport
from laneway._runtime.topics import LagReader

__all__ = ["LagReader", "RunReport", "SparkEngine", "archive_path", "build_archive"]
