"""What holds for every engine as a thing that is started and stopped."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from laneway.testing import FakeEngine
from support.contract import Row
from support.waiting import eventually

if TYPE_CHECKING:
    from support.contract import World


def test_an_engine_runs_again_after_a_stop(world: World) -> None:
    """The same engine object handles what came meanwhile; once, its second run ended at once."""
    app, topic, calls = world.app(), world.topic(1), world.recorder
    engine = world.engine()

    @app.handler(topic)
    def handle(record):
        with calls.call(record):
            pass

    for number in range(1, 4):
        world.produce(topic, [Row(b"k", b"%d" % number)])
        watcher = threading.Thread(target=_stop_after, args=(engine, lambda n=number: len(calls.calls()) == n))
        watcher.start()
        tally = app.run(engine).tally
        watcher.join()
        assert tally.handled == 1
    assert [call.offset for call in calls.calls()] == [0, 1, 2]
    assert world.committed(app, topic) == {0: 3}


def _stop_after(engine, condition) -> None:
    """Stop an engine that does not end by itself; the fake does, when nothing waits."""
    if not isinstance(engine, FakeEngine):
        try:
            eventually(condition, timeout=30)
        finally:
            engine.stop()
