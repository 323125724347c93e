"""Apps on two clusters: each handler reads its own, and each message goes to the cluster of its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laneway import Message, Record, Topic
from support.contract import Row

if TYPE_CHECKING:
    from support.contract import DirectWorld, SparkWorld

    Worlds = tuple[SparkWorld | DirectWorld, DirectWorld]


@pytest.mark.parametrize("named_by", ["handler", "topic"])
def test_two_handlers_of_one_topic_name_read_their_own_clusters(worlds: Worlds, named_by: str) -> None:
    """Two topics have one name; each handler gets what is on its cluster, and parks and commits there."""
    here, there = worlds
    topic, app = here.topic(2), here.app()
    there.create(topic.name, 2)
    source = topic if named_by == "handler" else Topic("west")
    here.settings = {"cluster": "main", "clusters.other.brokers": there.bootstrap}
    if named_by == "handler":
        here.settings |= {"handlers.west.cluster": "other"}
    else:
        here.settings |= {"topics.west.name": topic.name, "topics.west.cluster": "other"}
    recorder = here.recorder

    @app.handler(topic)
    def east(record: Record[bytes]) -> None:
        with recorder.call(record, handler="east", value=record.value.decode()):
            if record.value == b"bad":
                raise ValueError

    @app.handler(source)
    def west(record: Record[bytes]) -> None:
        with recorder.call(record, handler="west", value=record.value.decode()):
            if record.value == b"bad":
                raise ValueError

    here.produce(topic, [Row(b"k%d" % number, b"here") for number in range(20)])
    there.produce(topic, [*(Row(b"k%d" % number, b"there") for number in range(30)), Row(b"x", b"bad")])
    tally = here.run(app)
    assert (tally.handled, tally.parked) == (50, 1)
    called = {(call.facts["handler"], call.facts["value"]) for call in recorder.calls()}
    assert called == {("east", "here"), ("west", "there"), ("west", "bad")}
    errors = f"{topic.name}.{app.name}.error"
    assert not here.output(errors)
    assert [record.raw for record in there.output(errors)] == [b"bad"]
    assert here.committed(app, topic) == here.ends(topic)
    assert there.committed(app, topic) == there.ends(topic)


def test_a_message_goes_to_the_name_and_the_cluster_of_its_topic(worlds: Worlds) -> None:
    """A topic of the configuration has another name, or is on another cluster, or both; others are as in the code."""
    here, there = worlds
    topic, app = here.topic(2), here.app()
    plain, moved, away = (f"{topic.name}-{kind}" for kind in ("plain", "moved", "away"))
    for name in (plain, moved):
        here.create(name, 1)
    for name in (away, plain):
        there.create(name, 1)
    here.settings = {
        "cluster": "main",
        "clusters.other.brokers": there.bootstrap,
        "topics.bills.name": moved,
        "topics.receipts.name": away,
        "topics.receipts.cluster": "other",
    }

    @app.handler(topic)
    def bill(record: Record[bytes]) -> list[Message[bytes]]:
        targets = (plain, "bills", "receipts")
        return [Topic(name).message(record.value, key=record.key) for name in targets]

    here.produce(topic, [Row(b"k", b"%d" % number) for number in range(10)])
    tally = here.run(app)
    assert (tally.handled, tally.produced) == (10, 30)
    values = [b"%d" % number for number in range(10)]
    assert [record.raw for record in here.output(plain)] == values
    assert [record.raw for record in here.output(moved)] == values
    assert [record.raw for record in there.output(away)] == values
    assert not there.output(plain)
    assert here.committed(app, topic) == here.ends(topic)


def test_producers_of_the_configuration_hold_for_messages_of_handlers(worlds: Worlds) -> None:
    """An app reads from one cluster and writes to another, with a client of its own for options that differ.

    Copies stay on the cluster of the source.
    """
    here, there = worlds
    topic, app = here.topic(2), here.app()
    away, near = f"{topic.name}-away", f"{topic.name}-near"
    there.create(away, 1)
    here.create(near, 1)
    here.settings = {
        "cluster": "main",
        "clusters.other.brokers": there.bootstrap,
        "producers.receipts": {"topic": away, "cluster": "other", "compression": "zstd", "max_message_size": "2000b"},
        "producers.notes": {"topic": near, "acks": 1},
    }

    @app.handler(topic)
    def bill(record: Record[bytes]) -> list[Message[bytes]]:
        value = bytes(5_000) if record.value == b"large" else record.value
        return [Topic(name).message(value, key=record.key) for name in ("receipts", "notes")]

    here.produce(topic, [Row(b"k", b"0"), Row(b"k", b"large"), Row(b"k", b"1")])
    tally = here.run(app)
    assert (tally.handled, tally.parked) == (2, 1)
    assert [record.raw for record in there.output(away)] == [b"0", b"1"]
    assert {record.raw for record in here.output(near)} >= {b"0", b"1"}
    assert [record.raw for record in here.errors(app)] == [b"large"]
    assert here.committed(app, topic) == here.ends(topic)
