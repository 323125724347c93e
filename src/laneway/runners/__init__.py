"""Lanes in motion: read from a source, run turns on an event loop, threads, processes or Arrow tables, settle them."""

from laneway.runners._async import AsyncRunner
from laneway.runners._columnar import ColumnarRunner
from laneway.runners._processes import ProcessRunner
from laneway.runners._threads import ThreadRunner

__all__ = ["AsyncRunner", "ColumnarRunner", "ProcessRunner", "ThreadRunner"]
