"""Crashes, interrupts and other processes: every parked record is replayed or open."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter

import pytest

from laneway.errors import AdminError
from support.doors import GroupOffsets
from support.errors_scene import Row
from support.waiting import eventually

pytestmark = pytest.mark.broker


def keys(rows):
    return Counter(row.key for row in rows)


def test_a_crash_between_the_copies_and_the_commit_loses_nothing(scene, monkeypatch):
    """All are open still, what was to be kept now twice; the next run does the rest."""
    scene.park([Row(key, b"v") for key in (b"a", b"b", b"c")])

    def crash(self, offsets, *, wait):
        raise AdminError("the power is gone")

    with monkeypatch.context() as patched:
        patched.setattr(GroupOffsets, "commit_all", crash)
        done = scene.errors("replay", "--yes", "--key", "b")
    assert done.code == 1
    assert "the power is gone" in done.err
    assert "1 record replayed but not committed as done, so still open" in done.out
    assert (keys(scene.open()), scene.committed()) == ({b"a": 2, b"b": 1, b"c": 1}, {})

    assert scene.errors("replay", "--yes", "--key", "b").code == 0
    assert (keys(scene.source()), keys(scene.open())) == ({b"b": 2}, {b"a": 2, b"c": 1})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["interrupt", "terminate"])
def test_an_interrupt_accounts_for_what_is_done(scene, number):
    """What was acknowledged is committed, what was kept is open, and each record is in one place only."""
    rows = [Row(b"k%d" % number, b"v", (("kind", b"%d" % (number % 2)),)) for number in range(60)]
    scene.park(rows[::2], "Even")
    scene.park(rows[1::2], "Odd")
    scene.park([rows[0]._replace(key=b"last")], "Odd")
    with scene.start("replay", "--yes", "--type", "Odd", "--rate", "5") as process:
        try:
            eventually(lambda: scene.count(scene.topic) >= 4, why="the first replayed records")
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, (out, err)
    replayed, still_open = keys(scene.source()), keys(scene.open())

    assert 4 <= sum(replayed.values()) < 31
    assert f"{sum(replayed.values())} records replayed" in out
    assert replayed + still_open == keys([*rows, Row(b"last", b"v")])


def test_a_killed_replay_loses_nothing(scene):
    """After SIGKILL every record is replayed or open, some perhaps both."""
    scene.park([Row(b"k%d" % number, b"v") for number in range(60)])
    with scene.start("replay", "--yes", "--rate", "10") as process:
        try:
            eventually(lambda: scene.count(scene.topic) >= 20, why="the first replayed records")
        finally:
            process.kill()
            process.communicate()
    replayed, still_open = keys(scene.source()), keys(scene.open())

    assert set(replayed | still_open) == {b"k%d" % number for number in range(60)}
    assert max(replayed.values()) == max(still_open.values()) == 1
    assert scene.errors("replay", "--yes", "--rate", "0").code == 0
    assert set(keys(scene.source())) == {b"k%d" % number for number in range(60)}


def test_a_working_consumer_of_the_group_is_respected(scene):
    """While one runs nothing is replayed or dropped; looking on is allowed."""
    from confluent_kafka import Consumer

    scene.park([Row(b"k", b"v")])
    consumer = Consumer({**scene.options, "group.id": scene.group, "enable.auto.commit": False})
    consumer.subscribe([scene.error_topic])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment(), why="the consumer is in its group")
    try:
        for verb in ("replay", "drop"):
            done = scene.errors(verb, "--yes")
            assert (done.code, scene.source()) == (1, [])
            assert f"consumers of group {scene.group} are running" in done.err
        assert scene.errors("replay", "--dry-run").code == 0
        assert scene.errors("list").code == 0
    finally:
        consumer.close()
    assert eventually(lambda: scene.errors("replay", "--yes").code == 0)


def test_a_consumer_that_joins_meanwhile_ends_the_replay(scene, monkeypatch):
    """The brokers refuse the commit; everything is still open, and the reason is reported."""
    from confluent_kafka import Consumer

    from laneway.admin import ErrorLog

    monkeypatch.setattr(ErrorLog, "require_idle", lambda self: None)
    scene.park([Row(b"k", b"v")])
    consumer = Consumer({**scene.options, "group.id": scene.group, "enable.auto.commit": False})
    consumer.subscribe([scene.error_topic])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment(), why="the consumer is in its group")
    try:
        done = scene.errors("replay", "--yes")
    finally:
        consumer.close()
    assert done.code == 1
    assert f"consumers of group {scene.group} are running" in done.err
    assert len(scene.open()) == 1


def test_an_offset_that_another_process_moves_ends_the_replay(scene):
    """It is not overwritten, and no more is replayed."""
    scene.park([Row(b"k%d" % number, b"v") for number in range(60)])
    with scene.start("replay", "--yes", "--rate", "10") as process:
        try:
            eventually(lambda: scene.committed().get(0, 0) > 0, why="the first commit")
            scene.commit({0: 55})
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 1, out
    assert "another process moved the offset" in err
    assert scene.committed() == {0: 55}
    assert len(scene.source()) < 60


def test_a_record_that_its_topic_refuses_stays_open(scene):
    """One too large for the topic it is sent to is kept and named; those that share its request are not."""
    small = f"{scene.topic}.small"
    scene.create(small, max_message_bytes="2000")
    scene.park([Row(b"a", b"v"), Row(b"big", b"x" * 10_000), Row(b"c", b"v")])
    done = scene.errors("replay", "--yes", "--to", small, "--rate", "0")

    assert done.code == 1
    assert "kept open, MSG_SIZE_TOO_LARGE: Broker: Message size too large; raise max.message.bytes" in done.out
    assert "of the topic: 1 record (0:1)" in done.out
    assert ([record.key for record in scene.read(small)], [row.key for row in scene.open()]) == ([b"a", b"c"], [b"big"])


def test_the_answer_to_a_pipe_that_closes_is_silence(scene):
    """`laneway errors list | head` ends without a traceback."""
    scene.park([Row(b"k", b"v" * 1_000)] * 100)
    process = scene.start("list", "--json")
    with process:
        process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert isinstance(process, subprocess.Popen)
