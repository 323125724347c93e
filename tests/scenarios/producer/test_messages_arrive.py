"""Messages of a `Producer` arrive as they were made, from sync and async code."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time

import pytest

from laneway import Json, Text, Topic
from laneway.errors import CodecError, MessageTooLargeError, ProduceError
from laneway.producer import BulkProduceError, Producer
from support.doors import State
from support.waiting import eventually

pytestmark = pytest.mark.broker


def test_sync_code_waits_for_a_delivery(place):
    """The result says where the message is; bytes, nulls, headers and timestamp are as they were given."""
    topic = place.topic(4)
    headers = [("a", b"1"), ("a", None), ("b", b"\xff\x00")]
    with Producer(place.settings()) as producer:
        written = [
            producer.produce(topic.message(b"one", key=b"k", headers=headers, timestamp=1_700_000_000_000)).result(30),
            producer.produce(topic.message(None, key="k")).result(30),
            producer.produce(topic.message(b"", key=b"k", partition=3)).result(30),
        ]
        assert producer.counts.acknowledged == 3
    records = {(record.partition, record.offset): record for record in place.records(topic)}
    one, tombstone, empty = (records[found.partition, found.offset] for found in written)
    assert (one.raw, one.key, list(one.headers), one.timestamp) == (b"one", b"k", headers, 1_700_000_000_000)
    assert (tombstone.raw, tombstone.key, empty.raw, empty.partition) == (None, b"k", b"", 3)
    assert written[0].topic == topic.name


def test_async_code_awaits_deliveries(place):
    """Many tasks of one loop wait at once, the loop goes on meanwhile, and a bulk is sent from a thread."""
    topic = place.topic(4, Json(dict), key=lambda value: value["id"])

    async def work(producer):
        found = await asyncio.gather(*(producer.produce(topic.message({"id": f"{n}"})) for n in range(500)))
        written = await producer.produce_all(topic.message({"id": f"b{n}"}) for n in range(5_000))
        return found, written

    with Producer(place.settings()) as producer:
        found, written = asyncio.run(work(producer))
    assert written == 5_000
    records = place.records(topic)
    assert {(one.partition, one.offset) for one in found} <= {(record.partition, record.offset) for record in records}
    assert sorted(record.key for record in records) == sorted(
        f"{prefix}{n}".encode() for prefix, count in (("", 500), ("b", 5_000)) for n in range(count)
    )


def test_messages_of_a_key_stay_in_order_across_both_verbs(place):
    """`produce` and `produce_all` share a client, so a message never passes an earlier one of its key."""
    topic = place.topic(3, Text(), key=lambda value: value[0])
    sent = [f"{'abc'[n % 3]}{n}" for n in range(30_000)]
    with Producer(place.settings()) as producer:
        for start in range(0, len(sent), 1_000):
            part = sent[start : start + 1_000]
            if start % 2_000:
                for value in part:
                    producer.produce(topic.message(value))
            else:
                producer.produce_all(map(topic.message, part))
        assert producer.flush() == 0
        assert producer.counts.acknowledged == 30_000
    read: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    for record in place.records(topic):
        read[record.raw.decode()[0]].append(record.raw.decode())
    assert read == {key: [value for value in sent if value[0] == key] for key in "abc"}


def test_many_threads_share_one_producer(place):
    """Nothing is lost or mixed up when threads produce and wait at once, and one computes."""
    topic = place.topic(4, Text())
    is_over = threading.Event()

    def compute():
        while not is_over.is_set():
            sum(range(1_000))

    with Producer(place.settings()) as producer:

        def work(name):
            for n in range(200):
                assert producer.produce(topic.message(f"{name}-{n}", key=name)).result(60).topic == topic.name

        threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
        busy = threading.Thread(target=compute)
        for thread in [busy, *threads]:
            thread.start()
        for thread in threads:
            thread.join(120)
        is_over.set()
        busy.join()
    values = [record.raw.decode() for record in place.records(topic)]
    for n in range(4):
        assert [value for value in values if value.startswith(f"t{n}-")] == [f"t{n}-{i}" for i in range(200)]


def test_an_error_that_nobody_waited_for_is_logged_and_counted(place, caplog):
    """A message that the topic refuses raises where code waits for it, and is reported elsewhere."""
    topic = place.topic(1, config={"max.message.bytes": "1000"})
    with Producer(place.settings()) as producer, caplog.at_level(logging.ERROR, "laneway"):
        watched = producer.produce(topic.message(bytes(10_000)))
        with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
            watched.result(30)
        del watched
        assert (producer.counts.failed, producer.counts.unobserved) == (1, 0)
        producer.produce(topic.message(bytes(10_000)))
        eventually(lambda: producer.counts.unobserved == 1, timeout=30, why="the report")
        assert producer.counts.failed == 2
    assert [entry.message for entry in caplog.records if "no code waited" in entry.message]


@pytest.mark.parametrize("refused_by", ["client", "broker"])
def test_a_bulk_says_which_messages_failed(place, refused_by):
    """The others are written; the error has number, keys and reasons.

    A broker refuses a whole request for one message that is too large, so there each bulk is one message.
    """
    topic = place.topic(1, config={"max.message.bytes": "5000"})
    limit = {f"producers.{topic.name}": {"max_message_size": 5000}} if refused_by == "client" else {}
    messages = [topic.message(bytes(20_000) if n in (3, 7) else b"small", key=str(n)) for n in range(10)]
    bulks = [messages] if refused_by == "client" else [[message] for message in messages]
    failures = []
    with Producer(place.settings(**limit)) as producer:
        for bulk in bulks:
            error = producer.produce_all(bulk).exception(30)
            if error is not None:
                assert isinstance(error, BulkProduceError)
                assert (error.total, error.count) == (len(bulk), 2 if refused_by == "client" else 1)
                failures += error.failures
        assert producer.counts.acknowledged == 8
        assert producer.counts.unobserved == 0
    assert [type(failure.error) for failure in failures] == [MessageTooLargeError] * 2
    assert [(failure.topic, failure.key) for failure in failures] == [(topic.name, b"3"), (topic.name, b"7")]
    assert [record.key for record in place.records(topic)] == [b"0", b"1", b"2", b"4", b"5", b"6", b"8", b"9"]


def test_a_bulk_that_breaks_off_says_how_far_it_came(place):
    """An error of the iterable, or a value that cannot be encoded, ends the bulk; what was sent is written."""
    topic = place.topic(1, Text())

    def broken():
        yield topic.message("one")
        yield topic.message("two")
        raise ValueError("no more")

    with Producer(place.settings()) as producer:
        with pytest.raises(ProduceError, match=r"after 2: ValueError"):
            producer.produce_all(broken()).result(30)
        with pytest.raises(ProduceError, match=r"after 1: CodecError"):
            producer.produce_all([topic.message("three"), topic.message(4)]).result(30)
        with pytest.raises(CodecError):
            producer.produce(topic.message(5))
    assert [record.raw for record in place.records(topic)] == [b"one", b"two", b"three"]


def test_an_interceptor_changes_or_drops_messages(place):
    """It is called for both verbs; a dropped message has no metadata."""
    topic = place.topic(1)

    def intercept(message):
        return None if message.value == b"drop" else message.replaced(headers=[*message.headers, ("by", b"me")])

    with Producer(place.settings(), interceptors=[intercept]) as producer:
        assert producer.produce(topic.message(b"drop")).result(30) is None
        assert producer.produce(topic.message(b"keep")).result(30).offset == 0
        assert producer.produce_all([topic.message(b"drop"), topic.message(b"keep")]).result(30) == 1
    assert [(record.raw, list(record.headers)) for record in place.records(topic)] == [(b"keep", [("by", b"me")])] * 2


def _murmur2(data: bytes) -> int:
    """The hash of Kafka's Java client, from its description."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


def test_keys_land_where_java_puts_them(place):
    """murmur2 of the key, positive, modulo the partitions; an empty key is a key."""
    assert _murmur2(b"21") == -973932308 & 0xFFFFFFFF  # from the tests of Kafka's Java client
    topic = place.topic(7)
    keys = [b"", b"21", b"foobar", b"a-little-bit-long-string", *(b"key-%d" % n for n in range(200))]
    with Producer(place.settings()) as producer:
        deliveries = [producer.produce(topic.message(b"", key=key)) for key in keys]
        found = {key: delivery.result(30).partition for key, delivery in zip(keys, deliveries, strict=True)}
    assert found == {key: (_murmur2(key) & 0x7FFFFFFF) % 7 for key in keys}


def test_a_closed_producer_refuses_messages(place):
    """Also one that was closed twice."""
    producer = Producer(place.settings())
    producer.close()
    producer.close()
    assert producer.state is State.CLOSED
    with pytest.raises(ProduceError, match="closed"):
        producer.produce(Topic("any").message(b""))


def test_a_missing_topic_is_a_warning_and_heals(place):
    """Health names the topic, and is well when it exists."""
    topic = Topic(f"missing-{time.time_ns()}")
    with Producer(place.settings(), topics=[topic]) as producer:
        assert producer.wait_for(State.PRODUCING, 30)
        health = eventually(lambda: (found := producer.health()).reasons and found, timeout=30)
        assert (str(health.level), health.reasons[0].code) == ("WARNING", "topic-missing")
        assert topic.name in health.reasons[0].text
        place.cluster.admin.create(topic.name, 1)
        eventually(lambda: producer.health().is_ok, timeout=30, why="a topic that is there")


def test_a_process_that_ends_without_close_flushes(place):
    """A script that forgets to close loses nothing at a normal exit."""
    topic = place.topic(1)
    code = f"""
from laneway import Topic
from laneway.producer import Producer
producer = Producer(brokers={place.cluster.bootstrap!r})
for n in range(1000):
    producer.produce(Topic({topic.name!r}).message(b"%d" % n))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert len(place.records(topic)) == 1000


def test_a_fork_has_a_client_of_its_own(place):
    """A producer made before a fork works on both sides, because clients do not survive a fork."""
    topic = place.topic(1)
    code = f"""
import os
from laneway import Topic
from laneway.producer import Producer
producer = Producer(brokers={place.cluster.bootstrap!r})
topic = Topic({topic.name!r})
producer.produce(topic.message(b"before")).result(30)
child = os.fork()
if child == 0:
    producer.produce(topic.message(b"child")).result(30)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
producer.produce(topic.message(b"parent")).result(30)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert [record.raw for record in place.records(topic)] == [b"before", b"child", b"parent"]


def test_the_configuration_of_a_topic_holds(place):
    """The real name and the acknowledgements come from `producers`, the value's bytes from the codec."""
    real = place.topic(1)
    settings = place.settings(**{"producers.notes": {"topic": real.name, "acks": 1, "compression": "zstd"}})
    notes = Topic("notes", Json(dict))
    with Producer(settings) as producer:
        assert producer.produce(notes.message({"a": 1})).result(30).topic == real.name
        assert producer.produce_all([notes.message({"a": 2}), notes.message({"a": 3})]).result(30) == 2
    assert [json.loads(record.raw) for record in place.records(real)] == [{"a": 1}, {"a": 2}, {"a": 3}]
