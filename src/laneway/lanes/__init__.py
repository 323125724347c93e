"""Which record may run now, and which offsets are finished. Pure: no thread, clock or I/O."""

from laneway.lanes._finished import (
    CLEAN,
    MOST,
    NEW,
    Finished,
    began_with,
    decode_finished,
    encode_finished,
    is_clean,
    readable_to,
    topic_id_of,
    with_topic_id,
)
from laneway.lanes._ledger import Ledger
from laneway.lanes._scheduler import KeyQueue, Scheduler, Turn

__all__ = [
    "CLEAN",
    "MOST",
    "NEW",
    "Finished",
    "KeyQueue",
    "Ledger",
    "Scheduler",
    "Turn",
    "began_with",
    "decode_finished",
    "encode_finished",
    "is_clean",
    "readable_to",
    "topic_id_of",
    "with_topic_id",
]
