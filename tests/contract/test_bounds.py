"""What `lanes`, `processes` and `buffer` bound: the handler with all of its retry steps, not each step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from laneway import Buffer, Retry
from support import process_calls
from support.contract import Row
from support.contract_recorder import most_at_once

if TYPE_CHECKING:
    from pathlib import Path

    from support.contract import World

LANES, STEPS = 3, ("300ms", "300ms", "300ms")


def test_lanes_are_those_of_all_steps_together(world: World) -> None:
    """Records that come back from three retry topics share the lanes with those of the source."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=LANES, retry=Retry.steps(*STEPS, mode="unordered"))
    async def handle(record):
        with calls.call(record):
            await asyncio.sleep(0.05)
            raise ConnectionError

    world.produce(topic, [Row(b"k%d" % n) for n in range(30)])
    tally = world.finish(app)
    assert (tally.parked, tally.calls) == (30, 120)
    assert most_at_once(calls.calls()) == LANES


def test_processes_are_those_of_all_steps_together(world: World, tmp_path: Path) -> None:
    """`processes=2` with three steps is two processes."""
    if not world.has_lane_processes:
        pytest.skip("it has no processes for lanes")
    app, topic = world.app(), world.topic(1)
    app.handler(topic, processes=2, retry=Retry.steps(*STEPS, mode="unordered"))(process_calls.handle)
    folder = [("folder", str(tmp_path).encode())]
    world.produce(topic, [Row(b"k%d" % n, b"bad", folder) for n in range(20)])
    tally = world.finish(app)
    calls = process_calls.calls(tmp_path)
    assert (tally.parked, len(calls)) == (20, 80)
    children: dict[int, set[int]] = {}
    for call in calls:
        children.setdefault(call.parent, set()).add(call.pid)
    assert max(map(len, children.values())) == 2


def test_the_buffer_is_that_of_all_steps_together(world: World) -> None:
    """With room for four records no more than four are in work, whichever topic they come from."""
    app, topic, calls = world.app(), world.topic(1), world.recorder

    @app.handler(topic, lanes=50, buffer=Buffer(records=4), retry=Retry.steps(*STEPS, mode="unordered"))
    async def handle(record):
        with calls.call(record):
            await asyncio.sleep(0.05)
            raise ConnectionError

    world.produce(topic, [Row(b"k%d" % n) for n in range(20)])
    tally = world.finish(app)
    assert tally.parked == 20
    assert most_at_once(calls.calls()) <= 4
