"""Which record may run now, and which offsets are finished. Pure: no thread, clock or I/O."""

from laneway.lanes._ledger import Ledger
from laneway.lanes._scheduler import KeyQueue, Scheduler, Turn

__all__ = ["KeyQueue", "Ledger", "Scheduler", "Turn"]
