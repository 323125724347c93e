"""Settings: one frozen, validated value out of a YAML file, the environment and flags.

>>> from laneway.settings import load
>>> load(overrides={"brokers": "kafka:9092"}).cluster().brokers
('kafka:9092',)
"""

from laneway.settings._cluster import (
    ClusterSettings,
    ConsumerSettings,
    OauthSettings,
    ProducerSettings,
    SecuritySettings,
)
from laneway.settings._dedup import DedupSettings
from laneway.settings._load import effective, load
from laneway.settings._model import (
    ErrorSettings,
    HandlerSettings,
    HealthSettings,
    Settings,
    SparkSettings,
    TopicSettings,
)
from laneway.settings._producers import (
    MessageRoute,
    TopicProducerSettings,
    message_route,
    producer_of,
    producer_options,
)
from laneway.settings._reference import reference
from laneway.settings._secret import Secret
from laneway.settings._spark import is_secret, redaction

__all__ = [
    "ClusterSettings",
    "ConsumerSettings",
    "DedupSettings",
    "ErrorSettings",
    "HandlerSettings",
    "HealthSettings",
    "MessageRoute",
    "OauthSettings",
    "ProducerSettings",
    "Secret",
    "SecuritySettings",
    "Settings",
    "SparkSettings",
    "TopicProducerSettings",
    "TopicSettings",
    "effective",
    "is_secret",
    "load",
    "message_route",
    "producer_of",
    "producer_options",
    "redaction",
    "reference",
]
