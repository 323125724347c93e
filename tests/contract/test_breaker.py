"""A dependency of a handler that is down for a while."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from laneway import Breaker, Reject, Retry
from support.contract import Row
from support.contract_recorder import overlaps

if TYPE_CHECKING:
    from support.contract import World

PAUSE, PAUSE_MAX, OUTAGE = 0.2, 0.4, 2.0


class Dependency:
    """Down from the first call on for a time, or for a number of calls; a flag file is there for all processes."""

    def __init__(self, path: Path, *, seconds: float = 0.0, calls: int = 0) -> None:
        self._path = str(path)
        self._seconds = seconds
        self._calls = calls

    def call(self) -> None:
        flag = Path(self._path)
        if self._seconds:
            with contextlib.suppress(FileExistsError), flag.open("x") as file:
                file.write(str(_now() + self._seconds))
            until = flag.read_text()
            if not until or _now() < float(until):
                raise ConnectionError("refused")
        else:
            with flag.open("ab") as file:
                file.write(b".")
            if flag.stat().st_size <= self._calls:
                raise ConnectionError("refused")


def _now() -> float:
    """The time that the handler's process has, which is virtual on the fake."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def _rows(count: int, keys: int = 12) -> list[Row]:
    return [Row(b"k%d" % (n % keys), b"%d" % n, (), n % keys % 4) for n in range(count)]


def _assert_kept(world: World, count: int, *, first: int) -> None:
    """Every record was handled once, each key in its order, and few calls were made while it was down."""
    made = world.recorder.calls()
    good = [call for call in made if call.error is None]
    assert overlaps(made, lambda call: set(call.keys)) == []
    ends = [(key, offset) for call in good for key, offset in zip(call.keys, call.offsets, strict=True)]
    assert len(ends) == len(set(ends)) == count
    for key in {key for key, _ in ends}:
        offsets = [offset for found, offset in ends if found == key]
        assert offsets == sorted(offsets)
    # In each process: those that open it, those under way then, and the probes.
    probes = OUTAGE / PAUSE_MAX + 3
    assert len(made) - len(good) <= len({call.pid for call in made}) * (first + probes)


def test_an_outage_costs_no_record_its_place(world: World, tmp_path: Path) -> None:
    """A handler that is down for a while is hardly called meanwhile; then all goes on, in order, and none is parked."""
    app, topic, calls = world.app(), world.topic(4), world.recorder
    dependency = Dependency(tmp_path / "flag", seconds=OUTAGE)

    @app.handler(topic, lanes=3, retry=Retry(6, "10ms"), breaker=Breaker(5, f"{PAUSE}s", f"{PAUSE_MAX}s"))
    def handle(record):
        with calls.call(record):
            dependency.call()

    world.produce(topic, _rows(120))
    tally = world.run(app)
    assert (tally.handled, tally.parked, world.errors(app)) == (120, 0, [])
    assert tally.breaker_opened >= 1
    assert tally.breaker_seconds > OUTAGE / 2
    _assert_kept(world, 120, first=5 + 12)


@pytest.mark.engine_neutral
def test_an_async_handler_whose_breaker_opens_at_once(world: World, tmp_path: Path) -> None:
    """Not a single record is parked, although none may be tried again: what fails because of the outage is kept."""
    app, topic, calls = world.app(), world.topic(4), world.recorder
    dependency = Dependency(tmp_path / "flag", seconds=OUTAGE)

    @app.handler(topic, lanes=3, breaker=Breaker(1, f"{PAUSE}s", f"{PAUSE_MAX}s"))
    async def handle(record):
        with calls.call(record):
            await asyncio.sleep(0.001)
            dependency.call()

    world.produce(topic, _rows(120))
    tally = world.run(app)
    assert (tally.handled, tally.parked, world.errors(app)) == (120, 0, [])
    assert {call.attempt for call in calls.calls()} == {1}
    _assert_kept(world, 120, first=12)


@pytest.mark.engine_neutral
def test_a_batch_handler_gets_its_records_back(world: World, tmp_path: Path) -> None:
    """A batch is called again as if it had not been, members of one key in their order."""
    app, topic, calls = world.app(), world.topic(4), world.recorder
    dependency = Dependency(tmp_path / "flag", seconds=OUTAGE)

    @app.batch_handler(topic, size=10, within="50ms", breaker=Breaker(1, f"{PAUSE}s", f"{PAUSE_MAX}s"))
    def handle(batch):
        with calls.call(*batch.records):
            dependency.call()

    world.produce(topic, _rows(120))
    tally = world.run(app)
    assert (tally.handled, tally.parked, world.errors(app)) == (120, 0, [])
    _assert_kept(world, 120, first=4)


@pytest.mark.engine_neutral
def test_a_unique_handler_gets_its_records_back(world: World, tmp_path: Path) -> None:
    """The newest record of each key is handled in the end, whatever it superseded before and after the outage."""
    app, topic, calls = world.app(), world.topic(1), world.recorder
    dependency = Dependency(tmp_path / "flag", seconds=OUTAGE)

    @app.unique_handler(topic, size=10, within="50ms", breaker=Breaker(1, f"{PAUSE}s", f"{PAUSE_MAX}s"))
    def handle(batch):
        with calls.call(*batch.records):
            dependency.call()

    world.produce(topic, [Row(b"k%d" % (n % 3), b"%d" % n) for n in range(60)])
    tally = world.run(app)
    assert (tally.handled + tally.superseded, tally.parked) == (60, 0)
    last = {}
    for call in calls.calls():
        if call.error is None:
            last |= zip(call.keys, call.offsets, strict=True)
    assert last == {b"k0": 57, b"k1": 58, b"k2": 59}


def test_a_columnar_handler_gets_its_table_back(world: World, tmp_path: Path) -> None:
    """The same table is called until it succeeds, and nothing is read meanwhile."""
    app, topic, notes = world.app(), world.topic(1), world.recorder
    dependency = Dependency(tmp_path / "flag", calls=4)

    @app.columnar_handler(topic, size=10, breaker=Breaker(1, f"{PAUSE}s", f"{PAUSE_MAX}s"))
    def handle(table):
        notes.note(f"{table.column('offset')[0].as_py()}")
        dependency.call()

    world.produce(topic, [Row(b"k", b"%d" % n) for n in range(40)])
    tally = world.run(app)
    assert (tally.handled, tally.parked, world.errors(app)) == (40, 0, [])
    offsets = [int(text) for _, _, text in notes.notes()]
    assert offsets[:5] == [0] * 5
    assert offsets[5:] == sorted(set(offsets) - {0})
    assert (tally.breaker_opened, tally.retried) == (1, 4)


@pytest.mark.engine_neutral
def test_what_is_the_records_own_fault_opens_nothing(world: World) -> None:
    """Rejected records are parked one after the other, and the handler is called on."""
    app, topic, calls = world.app(), world.topic(4), world.recorder

    @app.handler(topic, lanes=2, breaker=Breaker(2, "10m", "10m"))
    def handle(record):
        with calls.call(record):
            raise Reject

    world.produce(topic, _rows(20))
    tally = world.run(app)
    assert (tally.parked, tally.breaker_opened, len(calls.calls())) == (20, 0, 20)
