"""Lanes in motion: read from a source, run turns on an event loop, threads, processes or Arrow tables, settle them."""

from laneway._runtime.runners.event_loop import EventLoopRunner
from laneway._runtime.runners.processes import ProcessRunner
from laneway._runtime.runners.tables import TableRunner
from laneway._runtime.runners.threads import ThreadRunner

__all__ = ["EventLoopRunner", "ProcessRunner", "TableRunner", "ThreadRunner"]
