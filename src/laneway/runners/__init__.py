"""Lanes in motion: read from a source, run turns on an event loop, on threads or on Arrow tables, settle them."""

from laneway.runners._async import AsyncRunner
from laneway.runners._columnar import ColumnarRunner
from laneway.runners._threads import ThreadRunner

__all__ = ["AsyncRunner", "ColumnarRunner", "ThreadRunner"]
