"""Workloads that measure an engine, with the same topics and checks for each."""

from laneway.devkit.bench._measure import Figures, measure
from laneway.devkit.bench._workloads import WORKLOADS, Workload

__all__ = ["WORKLOADS", "Figures", "Workload", "measure"]
