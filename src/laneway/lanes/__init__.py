"""Which record may run now, and which offsets are finished. Pure: no thread, clock or I/O."""

from laneway.lanes._finished import CLEAN, MOST, Finished, decode_finished, encode_finished
from laneway.lanes._ledger import Ledger
from laneway.lanes._scheduler import KeyQueue, Scheduler, Turn

__all__ = [
    "CLEAN",
    "MOST",
    "Finished",
    "KeyQueue",
    "Ledger",
    "Scheduler",
    "Turn",
    "decode_finished",
    "encode_finished",
]
