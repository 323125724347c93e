"""What a `Producer` does while its brokers are away, slow, or answer with a fatal error."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import ExitStack

import pytest

from laneway import Text, Topic
from laneway.devkit import broker
from laneway.errors import InDoubtError, ProduceError
from laneway.producer import Producer
from laneway.settings import load
from support.answer_proxy import AnswerProxy
from support.doors import Admin, State
from support.proxy import Proxy
from support.topics import read_all
from support.waiting import eventually

pytestmark = pytest.mark.broker

_OUT_OF_ORDER = 45
"""Kafka's OUT_OF_ORDER_SEQUENCE_NUMBER: for the first message on its way librdkafka can only give up."""


@pytest.fixture(scope="module")
def node():
    """A broker whose clients can be sent through a proxy."""
    with broker.ephemeral(is_proxied=True) as cluster:
        (found,) = cluster.nodes
        yield cluster, found.plan.proxy


@pytest.fixture
def topic(node, request):
    """A topic of one partition."""
    name = f"t{time.time_ns()}"
    Admin({"bootstrap.servers": node[0].bootstrap}).create(name, 1)
    return Topic(name, Text())


def settings_of(address, **more):
    return load(overrides={"brokers": address, **more})


def values(node, topic):
    options = {"bootstrap.servers": node[0].bootstrap}
    records = read_all(
        Admin(options), load(overrides={"brokers": node[0].bootstrap}).cluster().consumer_options(), topic.name
    )
    return [record.raw.decode() for record in records]


def test_a_broker_that_is_absent_at_the_start_is_waited_for(node, topic):
    """Making a producer succeeds, health is critical, messages wait, and all arrive when the broker is there."""
    _cluster, ports = node
    producer = Producer(settings_of(ports.address), topics=[topic])
    assert producer.state is State.INITIALISING
    deliveries = [producer.produce(topic.message(f"{n}")) for n in range(100)]
    health = eventually(lambda: (found := producer.health()).level.name == "CRITICAL" and found, timeout=30)
    assert health.reasons[0].code == "brokers-unreachable"
    assert not producer.wait_for(State.PRODUCING, 0.01)
    with pytest.raises(TimeoutError, match="no answer"):
        deliveries[0].result(0.01)
    with Proxy(ports.back, ports.front):
        assert producer.wait_for(State.PRODUCING, 30)
        assert [delivery.result(30).offset for delivery in deliveries] == list(range(100))
        eventually(lambda: producer.health().is_ok, timeout=30, why="a healthy producer")
        producer.close()
    assert values(node, topic) == [f"{n}" for n in range(100)]


def test_a_broker_that_goes_away_and_comes_back_loses_nothing(node, topic):
    """Connections are cut while messages are on their way: each is written once, in order."""
    _cluster, ports = node
    with Proxy(ports.back, ports.front) as proxy, Producer(settings_of(ports.address)) as producer:
        for n in range(20_000):
            producer.produce(topic.message(f"{n}"))
            if n % 4_000 == 3_999:
                proxy.reset_all()
        assert producer.flush(60) == 0
        assert producer.counts.acknowledged == 20_000
    assert values(node, topic) == [f"{n}" for n in range(20_000)]


def test_a_full_buffer_makes_sync_code_wait(node, topic):
    """No BufferError: the loop waits while the broker is silent, and continues in order when it answers."""
    _cluster, ports = node
    with Proxy(ports.back, ports.front) as proxy:
        given = settings_of(ports.address, **{"clusters.main.producer.buffer_size": "2MiB"})
        with Producer(given) as producer:
            producer.produce(topic.message("first")).result(30)
            proxy.stall(2.0)
            began = time.monotonic()
            for n in range(400):
                producer.produce(topic.message(f"{n}" + "x" * 10_000))
            assert time.monotonic() - began > 1.0, "4 MB went into a buffer of 2 MiB"
            assert producer.flush(60) == 0
    assert [text.rstrip("x") for text in values(node, topic)] == ["first", *(f"{n}" for n in range(400))]


def test_a_full_buffer_does_not_stop_an_event_loop(node, topic):
    """Messages of async code wait for room beside the loop, which goes on, and stay in order."""
    _cluster, ports = node
    ticks = []

    async def tick():
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.02)

    async def work(producer):
        ticking = asyncio.create_task(tick())
        deliveries = [producer.produce(topic.message(f"{n}" + "x" * 10_000)) for n in range(400)]
        found = await asyncio.gather(*deliveries)
        ticking.cancel()
        return found

    with Proxy(ports.back, ports.front) as proxy:
        given = settings_of(ports.address, **{"clusters.main.producer.buffer_size": "2MiB"})
        with Producer(given) as producer:
            producer.produce(topic.message("first")).result(30)
            proxy.stall(2.0)
            found = asyncio.run(work(producer))
    assert [one.offset for one in found] == list(range(1, 401))
    assert max(later - now for now, later in itertools.pairwise(ticks)) < 1.0
    assert [text.rstrip("x") for text in values(node, topic)] == ["first", *(f"{n}" for n in range(400))]


def test_close_fails_what_has_no_answer(node, topic):
    """What waits when the time is over has an error that says whether it may be written; nothing waits forever."""
    _cluster, ports = node
    with Proxy(ports.back, ports.front) as proxy:
        producer = Producer(settings_of(ports.address))
        producer.produce(topic.message("safe")).result(30)
        proxy.stall(60)
        deliveries = [producer.produce(topic.message(f"{n}")) for n in range(50)]
        bulk = producer.produce_all(topic.message(f"b{n}") for n in range(50))
        producer.close(0.5)
        errors = [delivery.exception(10) for delivery in deliveries]
        assert all(isinstance(error, ProduceError) for error in errors)
        assert any(isinstance(error, InDoubtError) for error in errors), "some were on their way"
        assert "may or may not" in str(next(error for error in errors if isinstance(error, InDoubtError)))
        assert bulk.exception(10).count == 50
        assert producer.counts.failed == 100


def test_a_timeout_says_what_is_wrong(node):
    """A message for a topic that does not exist fails after its time limit, and the error says why."""
    cluster, _ = node
    given = settings_of(cluster.bootstrap, **{"clusters.main.producer.timeout": "1s"})
    with Producer(given) as producer, pytest.raises(ProduceError, match=r"no such topic|UNKNOWN_TOPIC"):
        producer.produce(Topic(f"none-{time.time_ns()}").message(b"")).result(30)


@pytest.mark.parametrize("verb", ["produce", "produce_all"])
def test_a_fatal_error_replaces_the_client(node, topic, verb):
    """Idempotence cannot continue after it: what was on its way is in doubt, the next messages have a new client."""
    _cluster, ports = node
    with ExitStack() as stack:
        proxy = stack.enter_context(AnswerProxy(ports.back, ports.front))
        producer = stack.enter_context(Producer(settings_of(ports.address)))
        assert producer.produce(topic.message("before")).result(30).offset == 0
        proxy.errors.append(_OUT_OF_ORDER)
        if verb == "produce":
            with pytest.raises(InDoubtError, match="may or may not"):
                producer.produce(topic.message("doubt")).result(30)
        else:
            (failure,) = producer.produce_all([topic.message("doubt")]).exception(30).failures
            assert isinstance(failure.error, InDoubtError)
        assert not proxy.errors, "the proxy changed an answer"
        if verb == "produce":
            assert producer.produce(topic.message("after")).result(30).offset == 2
        else:
            assert producer.produce_all([topic.message("after")]).result(30) == 1
        assert producer.counts.failed == 1
    assert values(node, topic) == ["before", "doubt", "after"]


def test_a_fatal_error_in_a_busy_producer_loses_nothing_silently(node, topic):
    """Each message is acknowledged and on the topic, or has an error; the order of what was acknowledged is kept."""
    _cluster, ports = node
    with AnswerProxy(ports.back, ports.front) as proxy, Producer(settings_of(ports.address)) as producer:
        deliveries = [producer.produce(topic.message(f"{n}")) for n in range(5_000)]
        producer.flush(30)
        proxy.errors.append(_OUT_OF_ORDER)
        deliveries += [producer.produce(topic.message(f"{n}")) for n in range(5_000, 20_000)]
        outcomes = [delivery.exception(60) for delivery in deliveries]
        assert not proxy.errors
        counts = eventually(lambda: (found := producer.counts).pending == 0 and found, timeout=10)
    written = [str(n) for n, error in enumerate(outcomes) if error is None]
    failed = [str(n) for n, error in enumerate(outcomes) if error is not None]
    assert failed
    assert (counts.acknowledged, counts.failed, counts.pending) == (len(written), len(failed), 0)
    found = values(node, topic)
    assert len(found) == len(set(found))
    assert [value for value in found if value in set(written)] == written
