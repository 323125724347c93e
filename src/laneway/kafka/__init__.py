"""Kafka clients: the only room that imports confluent_kafka. Both engines use it."""

from laneway.kafka._admin import Admin
from laneway.kafka._describe import Group, GroupMember
from laneway.kafka._errors import BrokerAbsentError, NotOwnerError
from laneway.kafka._filler import produce_many
from laneway.kafka._group import Committed, GroupOffsets, Place
from laneway.kafka._membership import Membership, Owner
from laneway.kafka._ranges import Range, RangeReader
from laneway.kafka._sender import KafkaSender
from laneway.kafka._senders import sender_of
from laneway.kafka._topic_ids import TopicIds
from laneway.kafka._trouble import MISSING

__all__ = [
    "MISSING",
    "Admin",
    "BrokerAbsentError",
    "Committed",
    "Group",
    "GroupMember",
    "GroupOffsets",
    "KafkaSender",
    "Membership",
    "NotOwnerError",
    "Owner",
    "Place",
    "Range",
    "RangeReader",
    "TopicIds",
    "produce_many",
    "sender_of",
]
