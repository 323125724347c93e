"""What a reader asks its client for."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from laneway.kafka import Range, RangeReader, _ranges


class Client:
    """Takes down what it is asked for; no broker answers it."""

    def __init__(self, _options):
        self.asked = []

    def assign(self, places):
        self.asked.append(("assign", places[0].topic if places else ""))

    def list_topics(self, topic, _timeout):
        self.asked.append(("learn", topic))
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.fixture
def reader(monkeypatch):
    """A reader without a broker."""
    monkeypatch.setattr(_ranges, "Consumer", Client)
    return RangeReader({})


def test_a_topic_that_the_client_does_not_know_is_asked_for_once_and_after_the_assignment(reader):
    """librdkafka, once connected, looks for the leaders of a topic that is new to it once a second."""
    for topic in ("orders", "orders", "retries", "orders"):
        reader.open([Range(topic, 0, 0, 5)])
    learnt = [("assign", "orders"), ("learn", "orders"), ("assign", "orders"), ("assign", "retries")]
    assert reader._consumer.asked == [*learnt, ("learn", "retries"), ("assign", "orders")]


def test_nothing_is_asked_for_when_there_is_nothing_to_read(reader):
    """An empty range has no topic to learn of."""
    reader.open([Range("orders", 0, 5, 5)])
    assert reader._consumer.asked == [("assign", "")]
    assert reader.is_exhausted
