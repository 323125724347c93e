"""Process Kafka topics with more parallelism than they have partitions, in key order, on Spark or in-process."""

from laneway._core.acks import Ack
from laneway._declare.app import App
from laneway._declare.breaker import Breaker
from laneway._declare.context import current_record
from laneway._declare.error_consumer import ErrorConsumer
from laneway._declare.handler import Buffer
from laneway._declare.health import Health, Level, Stall
from laneway._declare.ordering import GroupedBy, Grouping, by_field, by_header
from laneway._declare.record import Batch, Message, Record, Topic
from laneway._declare.retry import Retry
from laneway.codecs import Codec, Json, Raw, Text
from laneway.errors import LanewayError, Reject, RetryAfter, Skip

__all__ = [
    "Ack",
    "App",
    "Batch",
    "Breaker",
    "Buffer",
    "Codec",
    "DirectEngine",
    "ErrorConsumer",
    "GroupedBy",
    "Grouping",
    "Health",
    "Json",
    "LanewayError",
    "Level",
    "Message",
    "Raw",
    "Record",
    "Reject",
    "Retry",
    "RetryAfter",
    "Skip",
    "SparkEngine",
    "Stall",
    "Text",
    "Topic",
    "by_field",
    "by_header",
    "current_record",
]


def __getattr__(name: str) -> object:
    """Load engines on first use, because Spark is heavy and most imports of laneway never run one."""
    if name == "SparkEngine":
        from laneway._engines.spark import SparkEngine

        return SparkEngine
    if name == "DirectEngine":
        from laneway._engines.direct import DirectEngine

        return DirectEngine
    if name == "__version__":
        from importlib.metadata import version

        return version("laneway")
    raise AttributeError(f"module 'laneway' has no attribute {name!r}")
