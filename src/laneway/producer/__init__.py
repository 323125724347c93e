"""Messages to Kafka topics from any code, with the configuration that handlers have.

>>> from laneway import Topic
>>> from laneway.producer import Producer
>>> with Producer(brokers="127.0.0.1:9092") as producer:  # doctest: +SKIP
...     producer.produce(Topic("orders").message(b"two books", key="42")).result(10).offset
0
"""

from laneway._declare.state import State
from laneway.producer._bulk import BulkDelivery, BulkProduceError, FailedMessage
from laneway.producer._delivery import Delivery, RecordMetadata
from laneway.producer._producer import Producer, ProducerCounts
from laneway.producer._transaction import Transaction

__all__ = [
    "BulkDelivery",
    "BulkProduceError",
    "Delivery",
    "FailedMessage",
    "Producer",
    "ProducerCounts",
    "RecordMetadata",
    "State",
    "Transaction",
]
