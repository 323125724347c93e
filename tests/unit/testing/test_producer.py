"""A `Producer` on the fake Kafka: what tests of user code need of it."""

from __future__ import annotations

import logging

import pytest

from laneway import App, Json, Message, Record, Topic, current_record
from laneway.errors import InDoubtError, ProduceError, TransactionAbortedError
from laneway.producer import BulkProduceError
from laneway.settings import load
from laneway.testing import FakeKafka, running

orders, notes = Topic("orders"), Topic("notes", Json(dict), key=lambda note: note["id"])


def test_messages_are_written_at_once():
    """`produced` has them decoded, in order, without what the test itself has put there."""
    kafka = FakeKafka(partitions=1)
    kafka.produce(notes.message({"id": "mine"}))
    with kafka.producer() as producer:
        assert producer.produce(notes.message({"id": "a"})).result(0).offset == 1
        assert producer.produce_all(notes.message({"id": name}) for name in "bc").result(0) == 2
        assert producer.counts.acknowledged == 3
    assert [(record.key, record.value["id"]) for record in kafka.produced(notes)] == [
        (b"a", "a"),
        (b"b", "b"),
        (b"c", "c"),
    ]
    assert len(kafka.records(notes)) == 4


def test_writes_fail_on_demand_and_heal(caplog):
    """Both verbs fail with the given error, an ignored one is counted, and health is well again afterwards."""
    kafka = FakeKafka(partitions=1)
    producer = kafka.producer()
    kafka.fail_writes(notes)
    with pytest.raises(ProduceError, match="the test said so"):
        producer.produce(notes.message({"id": "a"})).result(0)
    kafka.fail_writes(notes, InDoubtError("who knows"))
    with pytest.raises(InDoubtError):
        producer.produce(notes.message({"id": "b"})).result(0)
    with pytest.raises(BulkProduceError) as raised:
        producer.produce_all([notes.message({"id": "c"})]).result(0)
    assert raised.value.failures[0].key == b"c"
    with caplog.at_level(logging.ERROR, "laneway"):
        producer.produce(notes.message({"id": "d"}))
    assert (producer.counts.failed, producer.counts.unobserved) == (4, 1)
    assert "no code waited" in caplog.text
    kafka.heal(notes)
    producer.produce(notes.message({"id": "e"})).result(0)
    assert [record.value["id"] for record in kafka.produced(notes)] == ["e"]


def test_health_names_a_missing_topic():
    """As on a real Kafka; topics of the constructor are looked at from the start."""
    kafka = FakeKafka()
    producer = kafka.producer(topics=[notes])
    assert producer.state.value == "producing"
    assert producer.health().has("topic-missing")
    kafka.create(notes)
    assert producer.health().is_ok
    producer.close()
    with pytest.raises(ProduceError, match="closed"):
        producer.produce(notes.message({"id": "a"}))


def test_a_producer_in_a_handler_knows_the_record():
    """An interceptor of the producer passes the correlation id on, in async handlers too."""
    app = App("shop")
    kafka = FakeKafka()

    def correlate(message: Message[dict]) -> Message[dict]:
        record = current_record()
        return message if record is None else message.replaced(headers=[("id", record.header("id"))])

    producer = kafka.producer(interceptors=[correlate])

    @app.handler(orders, lanes=4)
    async def handle(record: Record[bytes]) -> None:
        await producer.produce(notes.message({"id": record.value.decode()}))

    with running(app, kafka=kafka):
        for name in (b"a", b"b", b"c"):
            kafka.produce(orders.message(name, key=name, headers=[("id", b"id-" + name)]))
        kafka.drain()
    assert {record.key: record.header("id") for record in kafka.produced(notes)} == {
        b"a": b"id-a",
        b"b": b"id-b",
        b"c": b"id-c",
    }


def test_configured_names_hold():
    """A topic on another cluster has the name that messages of handlers have there."""
    kafka = FakeKafka()
    settings = load(
        overrides={
            "cluster": "main",
            "clusters.main.brokers": "a:1",
            "clusters.west.brokers": "b:1",
            "producers": {"notes": {"topic": "n1"}, "orders": {"cluster": "west"}},
        }
    )
    producer = kafka.producer(settings)
    producer.produce(notes.message({"id": "a"}))
    producer.produce(orders.message(b""))
    assert {name: len(kafka.produced(name)) for name in kafka} == {"n1": 1, "orders@west": 1}


def test_a_transaction_is_written_at_its_end_or_not_at_all():
    """What a block wrote is there when it ends, and nothing of one that raised or that has a refused message."""
    kafka = FakeKafka(partitions=1)
    with kafka.producer(transactional_id="bank-1") as producer:
        with producer.transaction() as tx:
            tx.produce(notes.message({"id": "a"}))
            assert not kafka.produced(notes)
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:
            tx.produce(notes.message({"id": 1 / 0}))
        kafka.fail_writes(notes)
        with pytest.raises(TransactionAbortedError, match="the test said so"), producer.transaction() as tx:
            tx.produce_all([orders.message(b""), notes.message({"id": "b"})])
    assert [record.value["id"] for record in kafka.produced(notes)] == ["a"]
    assert not kafka.produced(orders)


def test_a_transaction_has_one_client():
    """A message with other options, or for another cluster, is refused: it could not be in the same transaction."""
    given = load(overrides={"producers.orders.linger": "1s"})
    with (
        FakeKafka(partitions=1).producer(given, transactional_id="bank-1") as producer,
        pytest.raises(ProduceError, match="goes to main/orders, but"),
        producer.transaction() as tx,
    ):
        tx.produce_all([notes.message({"id": "a"}), orders.message(b"")])
