"""The Spark engine: Spark plans, checkpoints and schedules; each task reads its offsets and runs the handlers."""

from laneway.engines.spark._engine import SparkEngine

__all__ = ["SparkEngine"]
