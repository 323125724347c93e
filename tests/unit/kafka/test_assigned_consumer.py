"""What a reader asks its client for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from laneway._kafka import AssignedConsumer, OffsetRange
from laneway._kafka import assigned_consumer as _ranges
from laneway.errors import DataLossError
from support.core import SleepingClock


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
    return AssignedConsumer({})


def test_a_topic_that_the_client_does_not_know_is_asked_for_once_and_after_the_assignment(reader):
    """librdkafka, once connected, looks for the leaders of a topic that is new to it once a second."""
    for topic in ("orders", "orders", "retries", "orders"):
        reader.open([OffsetRange(topic, 0, 0, 5)])
    learnt = [("assign", "orders"), ("learn", "orders"), ("assign", "orders"), ("assign", "retries")]
    assert reader._consumer.asked == [*learnt, ("learn", "retries"), ("assign", "orders")]


def test_nothing_is_asked_for_when_there_is_nothing_to_read(reader):
    """An empty range has no topic to learn of."""
    reader.open([OffsetRange("orders", 0, 5, 5)])
    assert reader._consumer.asked == [("assign", "")]
    assert reader.is_exhausted


class Log(Client):
    """A log that ends at some offset, which librdkafka says once when it is reached."""

    end = 150

    def __init__(self, _options):
        super().__init__(_options)
        self.is_told, self.is_away = False, False

    def list_topics(self, topic, _timeout):
        """Known."""

    def consume(self, _most, _timeout):
        if self.is_told:
            return []
        self.is_told = True
        error = KafkaError(KafkaError._PARTITION_EOF)
        return [SimpleNamespace(error=lambda: error, partition=lambda: 0, offset=lambda: self.end)]

    def get_watermark_offsets(self, _place, _timeout):
        if self.is_away:
            raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))
        return 0, self.end

    def incremental_unassign(self, places):
        """No more."""


@pytest.fixture(name="clock")
def _clock(monkeypatch):
    clock = SleepingClock()
    monkeypatch.setattr(_ranges, "time", clock)
    monkeypatch.setattr(_ranges, "Consumer", Log)
    return clock


def test_a_log_that_ends_inside_a_range_is_a_loss(clock):
    """Its topic was recreated: the rest will never come, and to wait for it would block the batch forever."""
    reader = AssignedConsumer({})
    reader.open([OffsetRange("orders", 0, 100, 200)])
    assert reader.fetch(10, 0.1) == []
    clock.sleep(2)
    with pytest.raises(DataLossError, match=r"orders\[0\]: offsets 100 to 199 are gone .the log now ends at 150"):
        reader.fetch(10, 0.1)


def test_a_log_that_ends_inside_a_range_ends_it_when_asked_to_go_on(clock):
    """What is missing is counted."""
    reader = AssignedConsumer({}, skip_lost=True)
    reader.open([OffsetRange("orders", 0, 100, 200)])
    reader.fetch(10, 0.1)
    assert not reader.is_exhausted
    clock.sleep(2)
    reader.fetch(10, 0.1)
    assert (reader.is_exhausted, reader.lost) == (True, 100)


def test_a_leader_that_is_new_may_know_the_end_of_its_log_late(clock):
    """It is asked again; that answer counts."""
    reader = AssignedConsumer({})
    reader.open([OffsetRange("orders", 0, 100, 200)])
    reader.fetch(10, 0.1)
    reader._consumer.is_away = True
    for _ in range(3):
        clock.sleep(2)
        reader.fetch(10, 0.1)
    reader._consumer.is_away, reader._consumer.end = False, 200
    clock.sleep(2)
    reader.fetch(10, 0.1)
    assert not reader.is_exhausted
