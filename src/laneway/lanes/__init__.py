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
from laneway.lanes._markers import UNDER_WAY, moved_on, since_of, under_way
from laneway.lanes._scheduler import KeyQueue, Scheduler, Turn

__all__ = [
    "CLEAN",
    "MOST",
    "NEW",
    "UNDER_WAY",
    "Finished",
    "KeyQueue",
    "Ledger",
    "Scheduler",
    "Turn",
    "began_with",
    "decode_finished",
    "encode_finished",
    "is_clean",
    "moved_on",
    "readable_to",
    "since_of",
    "topic_id_of",
    "under_way",
    "with_topic_id",
]
