"""Kafka clients: the only room that imports confluent_kafka. Both engines use it."""

from laneway._kafka.admin import Admin
from laneway._kafka.assigned_consumer import AssignedConsumer, OffsetRange
from laneway._kafka.encoded import Answered, Encoded, RefusedMessage
from laneway._kafka.errors import BrokerUnavailableError, FencedError
from laneway._kafka.group import Group, GroupMember, GroupOffsets, OffsetAndMetadata, Place
from laneway._kafka.group_consumer import GroupConsumer, PartitionOwner
from laneway._kafka.produce_many import produce_many
from laneway._kafka.producer_client import ProducerClient
from laneway._kafka.sender import KafkaSender
from laneway._kafka.senders import sender_of
from laneway._kafka.topic_ids import TopicIds
from laneway._kafka.topic_trouble import MISSING
from laneway._kafka.transactional_client import TransactionalClient

__all__ = [
    "MISSING",
    "Admin",
    "Answered",
    "AssignedConsumer",
    "BrokerUnavailableError",
    "Encoded",
    "FencedError",
    "Group",
    "GroupConsumer",
    "GroupMember",
    "GroupOffsets",
    "KafkaSender",
    "OffsetAndMetadata",
    "OffsetRange",
    "PartitionOwner",
    "Place",
    "ProducerClient",
    "RefusedMessage",
    "TopicIds",
    "TransactionalClient",
    "produce_many",
    "sender_of",
]
