"""Transactions of a `Producer`, on a broker behind a proxy that can hold back single requests."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as Librdkafka

from laneway import Text, Topic
from laneway.devkit import broker
from laneway.errors import (
    DeclarationError,
    InDoubtError,
    ProduceError,
    ProducerFencedError,
    TransactionAbortedError,
)
from laneway.producer import Producer
from laneway.settings import load
from support.doors import Admin
from support.proxy import Proxy
from support.topics import read_all
from support.waiting import eventually

pytestmark = pytest.mark.broker

_END_TXN = 26
_INVALID_PRODUCER_EPOCH = 47


@pytest.fixture(scope="module")
def node():
    """A broker whose clients can be sent through a proxy."""
    with broker.ephemeral(is_proxied=True) as cluster:
        (found,) = cluster.nodes
        yield cluster, found


@pytest.fixture
def topic(node):
    """A topic of one partition."""
    name = f"t{time.time_ns()}"
    Admin({"bootstrap.servers": node[0].bootstrap}).create(name, 1)
    return Topic(name, Text())


@pytest.fixture
def proxy(node):
    """A proxy that knows requests."""
    ports = node[1].plan.proxy
    with Proxy(ports.back, ports.front, knows_frames=True) as made:
        yield made


def settings_of(address, **more):
    return load(overrides={"brokers": address, **{key.replace("__", "."): value for key, value in more.items()}})


def through(proxy, topic, **more):
    """A producer behind the proxy."""
    return Producer(settings_of(f"127.0.0.1:{proxy.port}", **more), transactional_id=f"id-{topic.name}")


def direct(node, topic, **more):
    """A producer beside the proxy."""
    return Producer(settings_of(node[0].bootstrap, **more), transactional_id=f"id-{topic.name}")


def committed(node, topic):
    """What a consumer with read_committed sees."""
    options = settings_of(node[0].bootstrap).cluster().consumer_options()
    found = read_all(Admin({"bootstrap.servers": node[0].bootstrap}), options, topic.name)
    return [record.raw.decode() for record in found]


def end_of(node, topic, isolation="read_uncommitted"):
    """The end of the log; with read_committed what an open transaction keeps from readers does not count."""
    options = {"bootstrap.servers": node[0].bootstrap, "group.id": "ends", "isolation.level": isolation}
    consumer = Consumer(options)
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic.name, 0), timeout=10)[1]
    finally:
        consumer.close()


def stable_end_of(node, topic):
    """The end of the log for readers with read_committed."""
    return end_of(node, topic, "read_committed")


def write(producer, topic, *texts, then=lambda _: None):
    """Write messages in a transaction, and call *then* before its end."""
    with producer.transaction() as tx:
        tx.produce_all(map(topic.message, texts))
        then(tx)


def fail(_=None):
    raise ValueError("no money")


def cut_at_end(proxy):
    """Cut all connections when the next request to end a transaction is held back."""
    proxy.hold(_END_TXN)

    def cut():
        eventually(lambda: proxy.held, timeout=20, every=0.001, why="a request to end a transaction")
        proxy.reset_all()

    thread = threading.Thread(target=cut)
    thread.start()
    return thread


def test_messages_count_when_the_block_ends(node, topic):
    """Nothing is seen before the commit, all of it afterwards, and nothing of a block that raised."""
    with direct(node, topic) as producer:
        with producer.transaction() as tx:
            tx.produce(topic.message("1", key="a"))
            tx.produce_all(topic.message(f"{n}") for n in (2, 3))
            eventually(lambda: end_of(node, topic) == 3, timeout=10, why="uncommitted messages in the log")
            assert committed(node, topic) == []
        # The broker answers before it has written the markers to the partitions.
        eventually(lambda: committed(node, topic) == ["1", "2", "3"], timeout=10, why="what was committed")
        with pytest.raises(ValueError, match="no money"):
            write(producer, topic, "4", then=fail)
        with pytest.raises(ProduceError, match="over"):
            tx.produce(topic.message("5"))
        write(producer, topic)
        write(producer, topic, "6")
    eventually(lambda: committed(node, topic) == ["1", "2", "3", "6"], timeout=10, why="what was committed")


def test_a_refused_message_aborts(node, topic):
    """The error says which message it was, nothing of the transaction counts, and the next one works."""
    Admin({"bootstrap.servers": node[0].bootstrap}).create(
        f"{topic.name}-small", 1, config={"max.message.bytes": "2000"}
    )
    small = Topic(f"{topic.name}-small", Text())
    with direct(node, topic) as producer:
        with pytest.raises(TransactionAbortedError, match="TOO_LARGE"):
            write(producer, topic, "before", then=lambda tx: tx.produce(small.message("x" * 3_000)))
        write(producer, topic, "after")
    eventually(lambda: committed(node, topic) == ["after"], timeout=10, why="what was committed")


def test_wrong_uses_say_what_to_do(node, topic):
    """No id, two transactions at once, a copy for another process, few acknowledgements: each has its message."""
    with Producer(settings_of(node[0].bootstrap)) as plain, pytest.raises(DeclarationError, match="transactional_id="):
        plain.transaction()
    with direct(node, topic) as producer:
        with pytest.raises(DeclarationError, match="create it there"):
            pickle.dumps(producer)
        with producer.transaction(), pytest.raises(ProduceError, match="is open"):
            write(producer, topic)
    with pytest.raises(ProduceError, match="closed"):
        producer.transaction()
    with (
        direct(node, topic, clusters__main__producer__acks="leader") as weak,
        pytest.raises(DeclarationError, match="acks: all"),
    ):
        write(weak, topic, "1")


def test_a_second_producer_with_the_id_fences_the_first(node, topic):
    """What the first one left open is aborted, and it says why it can go no further, each time."""
    with direct(node, topic) as first, direct(node, topic) as second:
        with pytest.raises(ProducerFencedError, match="another producer"):
            write(first, topic, "lost", then=lambda _: write(second, topic, "kept"))
        eventually(lambda: committed(node, topic) == ["kept"], timeout=10, why="what was committed")
        for _ in range(2):
            with pytest.raises(ProducerFencedError, match="close this producer"):
                write(first, topic, "never")
        write(second, topic, "still")
    eventually(lambda: committed(node, topic) == ["kept", "still"], timeout=10, why="what was committed")


def test_librdkafka_alone_lets_a_late_commit_end_the_next_transaction(node, topic, proxy):
    """Why clients are replaced: a commit request that arrives late commits what was then aborted."""
    options = settings_of(f"127.0.0.1:{proxy.port}").cluster().producer_options()
    client = Librdkafka({**options, "transactional.id": f"id-{topic.name}", "log_level": 0})
    client.init_transactions(20)
    client.begin_transaction()
    client.produce(topic.name, b"first")
    thread = cut_at_end(proxy)
    client.commit_transaction(30)
    thread.join()
    client.begin_transaction()
    client.produce(topic.name, b"second, to be aborted")
    assert client.flush(20) == 0
    proxy.deliver_held()
    eventually(lambda: committed(node, topic) == ["first", "second, to be aborted"], timeout=10)


def test_a_late_commit_cannot_end_the_next_transaction(node, topic, proxy):
    """The connection breaks during a commit, whose request arrives in the next transaction: brokers refuse it."""

    def deliver(_tx):
        eventually(lambda: end_of(node, topic) > before, timeout=20, why="the message in the log")
        (answer,) = proxy.deliver_held()
        assert answer[-2:] == struct.pack(">h", _INVALID_PRODUCER_EPOCH)
        fail()

    with through(proxy, topic) as producer:
        write(producer, topic, "first")
        for number in range(2):  # librdkafka logs the second of two equal errors of one client only sometimes
            thread = cut_at_end(proxy)
            write(producer, topic, f"kept {number}")
            thread.join()
            before = end_of(node, topic)
            with pytest.raises(ValueError, match="no money"):
                write(producer, topic, f"aborted {number}", then=deliver)
    eventually(lambda: committed(node, topic) == ["first", "kept 0", "kept 1"], timeout=10, why="what was committed")


def test_a_commit_without_an_answer_is_in_doubt(node, topic, proxy):
    """The caller learns that the outcome is unknown; it is all or nothing, and the same producer continues."""
    with through(proxy, topic, clusters__main__producer__timeout="1s") as producer:
        write(producer, topic, "first")
        proxy.hold(_END_TXN)
        with pytest.raises(InDoubtError, match="unknown which"):
            write(producer, topic, "doubt 1", "doubt 2")
        assert proxy.held
        # The id was initialised again at once, so readers do not wait for the time-out of the transaction.
        assert stable_end_of(node, topic) == end_of(node, topic)
        proxy.deliver_held()
        write(producer, topic, "next")
    eventually(lambda: committed(node, topic) == ["first", "next"], timeout=10, why="what was committed")


def test_a_broker_that_is_killed_during_transactions(node, topic):
    """Each transaction is committed once or not at all, as its outcome says; doubt is all or nothing."""
    _, server = node
    with direct(node, topic, clusters__main__producer__timeout="8s") as producer:
        certain, doubtful = [], []
        restarted = threading.Thread(target=server.start)
        for number in range(60):
            if number == 20:
                server.kill()
                restarted.start()
            texts = [f"{number}.{part}" for part in range(5)]
            try:
                write(producer, topic, *texts)
            except InDoubtError:
                doubtful.append(texts)
            except ProduceError:
                continue
            else:
                certain.append(texts)
        restarted.join()
    found = eventually(lambda: committed(node, topic), timeout=30)
    assert len(found) == len(set(found)), "a message was committed twice"
    for texts in certain:
        assert set(texts) <= set(found)
    for texts in doubtful:
        assert len(set(texts) & set(found)) in (0, 5)
    assert set(found) <= {text for texts in [*certain, *doubtful] for text in texts}
    assert certain[-1][0] == "59.0", "it works again"


_OPEN = """
import sys
from laneway import Text, Topic
from laneway.producer import Producer
topic = Topic(sys.argv[2], Text())
producer = Producer(brokers=sys.argv[1], transactional_id=f"id-{topic.name}")
with producer.transaction() as tx:
    tx.produce(topic.message("open"))
    producer._transactions._client._producer.flush(10)
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_restart_ends_what_a_killed_process_left_open(node, topic):
    """With the same id readers wait for two seconds at most, and not until the time-out of the transaction."""
    process = subprocess.Popen(
        [sys.executable, "-c", _OPEN, node[0].bootstrap, topic.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ,
    )
    with process, direct(node, topic) as producer:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        began = time.monotonic()
        write(producer, topic, "next")
        eventually(lambda: committed(node, topic) == ["next"], timeout=10, why="what was committed")
        assert time.monotonic() - began < 3, "two seconds, and one for a busy machine"
