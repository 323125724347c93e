"""What is committed, and what a second run does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway import Reject
from support.contract import Row

if TYPE_CHECKING:
    from support.contract import World


def test_a_second_run_handles_nothing_again(world: World) -> None:
    """After a run the group's offsets are the ends of the logs, so the next run begins with what is new."""
    app, topic, calls = world.app(), world.topic(4), world.recorder

    @app.handler(topic, lanes=8)
    def handle(record):
        with calls.call(record):
            if record.value == b"3":
                raise Reject

    world.produce(topic, [Row(b"k%d" % n, b"%d" % n) for n in range(50)])
    assert world.run(app).finished == 50
    assert world.committed(app, topic) == world.ends(topic)
    assert world.run(app).read == 0
    world.produce(topic, [Row(b"new", b"new")])
    assert world.run(app).handled == 1
    assert len(calls.calls()) == 51
    assert len(world.errors(app)) == 1


def test_gaps_in_the_offsets_hold_up_nothing(world: World) -> None:
    """Offsets without records, in the middle and at the end of a log, are passed, counted and committed."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    @app.handler(topic, lanes=4)
    def handle(record):
        with calls.call(record):
            pass

    world.produce(topic, [Row(b"a", b"1", (), 0)])
    world.leave_gap(topic, 0)
    world.produce(topic, [Row(b"a", b"2", (), 0)])
    world.leave_gap(topic, 0)
    world.leave_gap(topic, 1)
    tally = world.run(app)
    assert [call.offset for call in calls.calls()] == [0, 4]
    assert (tally.read, tally.handled, tally.gaps) == (2, 2, 9)
    assert world.ends(topic) == {0: 8, 1: 3}
    assert world.committed(app, topic) == {0: 8, 1: 3}
    assert world.run(app).read == 0
