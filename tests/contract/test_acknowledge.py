"""Handlers that acknowledge records themselves, on every engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from laneway import Ack, Record, Reject
from support.contract import Row
from support.contract_recorder import overlaps

if TYPE_CHECKING:
    from support.contract import World


def test_records_are_finished_when_they_are_acknowledged(world: World) -> None:
    """Later, in any order, and not when the function returns; a key waits meanwhile, and what failed is parked."""
    app, topic, calls = world.app(), world.topic(2), world.recorder

    @app.handler(topic, lanes=10, acknowledge="manual")
    async def handle(record: Record[bytes], ack: Ack) -> None:
        async def later() -> None:
            with calls.call(record):
                await asyncio.sleep(0.02 + (record.offset % 3) * 0.03)
            if record.value == b"bad":
                ack.failed(Reject("no"))
            else:
                ack.done()

        tasks.add(task := asyncio.get_running_loop().create_task(later()))
        task.add_done_callback(tasks.discard)

    tasks: set[asyncio.Task[None]] = set()
    rows = [Row(b"k%d" % (number % 7), b"bad" if number % 10 == 0 else b"good") for number in range(70)]
    world.produce(topic, rows)
    tally = world.run(app)
    assert (tally.handled, tally.parked) == (63, 7)
    assert len(calls.calls()) == 70
    assert overlaps(calls.calls(), lambda call: call.keys) == []
    assert world.committed(app, topic) == world.ends(topic)
