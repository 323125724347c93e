"""What was written before a stop is there after the next start."""

from __future__ import annotations

import pytest

from laneway.devkit import broker

pytestmark = pytest.mark.broker


def test_a_topic_and_its_records_outlive_the_cluster(home):
    """A record produced before the stop is read after a start on another port."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    quiet = {"log_level": 0}
    first = broker.start(port=None, name="it", home=home)
    admin = AdminClient({"bootstrap.servers": first.bootstrap, **quiet})
    admin.create_topics([NewTopic("it-kept", 1)])["it-kept"].result(20)
    producer = Producer({"bootstrap.servers": first.bootstrap, **quiet})
    producer.produce("it-kept", b"value", b"key")
    assert producer.flush(20) == 0
    broker.stop("it", home=home)

    second = broker.start(port=None, name="it", home=home)
    consumer = Consumer({"bootstrap.servers": second.bootstrap, "group.id": "it", **quiet})
    consumer.assign([TopicPartition("it-kept", 0, 0)])
    record = consumer.poll(20)
    consumer.close()

    assert (record.key(), record.value()) == (b"key", b"value")
