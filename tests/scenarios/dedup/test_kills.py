"""Processes that are killed at any moment: one effect for each id."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from support.direct_scene import QUICK
from support.spark_scene import Scene
from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.store, pytest.mark.slow, pytest.mark.timeout(280)]

KINDS = ["sqlite", "postgres", "redis"]


class Bench(Scene):
    """A topic, a store, and a table of effects."""

    def __init__(self, bootstrap: str, folder: Path, test: str, kind: str, request: pytest.FixtureRequest) -> None:
        super().__init__(bootstrap, folder, test)
        self.kind = kind
        self._dsn, self._path = "", folder / "effects.db"
        if kind == "postgres":
            server = request.getfixturevalue("postgres")
            self._dsn = self.url = server.dsn
            self._execute("DROP TABLE IF EXISTS effect", "CREATE TABLE effect (id text)")
        else:
            self.url = f"sqlite:{self._path}" if kind == "sqlite" else request.getfixturevalue("redis").url
            with closing(sqlite3.connect(self._path)) as sql:
                sql.execute("PRAGMA journal_mode = WAL")
                sql.execute("CREATE TABLE effect (id text)")

    def _execute(self, *statements: str) -> list[tuple[str]]:
        import psycopg

        with psycopg.connect(self._dsn) as sql:
            for statement in statements:
                found = sql.execute(statement)
            return found.fetchall() if found.description else []

    def effects(self) -> Counter[str]:
        """How often each id had its effect."""
        if self._dsn:
            rows = self._execute("SELECT id FROM effect")
        else:
            with closing(sqlite3.connect(self._path, timeout=20)) as sql:
                rows = sql.execute("SELECT id FROM effect").fetchall()
        return Counter(row[0] for row in rows)

    def start(self, engine: str = "direct", **settings: object):
        fixed = {"target": "support.dedup_app:app", "store": self.url, "effects": self._path}
        return self.run("--engine", engine, **fixed, **{**QUICK, **settings})

    def wait_until_done(self, count: int, timeout: float = 120.0) -> None:
        eventually(
            lambda: len(self.effects()) >= count and self.committed(self.topic) == self.ends(self.topic),
            timeout=timeout, every=0.3, why=lambda: "\n".join(run.output for run in self._runs),
        )  # fmt: skip


@pytest.fixture(params=KINDS)
def bench(request, cluster, tmp_path):
    made = Bench(cluster.bootstrap, tmp_path, request.node.nodeid, request.param, request)
    made.create(made.topic, 4)
    yield made
    made.close()


def repeated(count):
    """That many ids, and three in ten of all records are repeats of an earlier one."""
    rng, rows = random.Random(11), []
    for number in range(count):
        rows.append(b"%d" % number)
        while rng.random() < 0.3:
            rows.append(b"%d" % rng.randrange(number + 1))
    return rows


@pytest.mark.parametrize("phase", ["claimed", "effect"])
@pytest.mark.parametrize("engine", ["direct", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_kill_in_the_middle_of_a_record(bench, engine, phase, tmp_path):
    """Between claim and effect, or effect and mark, the lease ends and the record runs again.

    Only where the effect is not in the transaction of the mark it is there twice.
    """
    armed = tmp_path / "armed"
    armed.touch()
    bench.produce_rows((b"k%d" % (number % 20), b"%d" % number) for number in range(200))
    settings = {"armed": armed, "dies": "100", "phase": phase}
    run = bench.start(engine, **settings)
    eventually(lambda: not armed.exists(), timeout=90, why=lambda: run.output)
    if engine == "direct":
        assert run.ended(30) == -9
        run = bench.start(engine, **settings)
    bench.wait_until_done(200)
    found = bench.effects()
    assert len(found) == 200
    doubled = {id_ for id_, times in found.items() if times > 1}
    if bench.kind != "redis":
        assert doubled == set()
    elif phase == "effect":
        assert "100" in doubled
        assert len(doubled) <= 8 * 4  # what was between effect and mark: a record in each lane
    else:
        assert "100" not in doubled


@pytest.mark.parametrize(
    ("count", "kills"),
    [(10_000, 3), pytest.param(100_000, 10, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])],
)
def test_repeats_and_kills(bench, count, kills):
    """Nothing is missing. In SQL stores nothing is doubled; with Redis only what was in work when a process died."""
    rows = repeated(count)
    bench.produce_rows((b"k%d" % (int(row) % 97), row) for row in rows)
    kind = "single" if bench.kind == "redis" else "batch"
    running = [bench.start(kind=kind) for _ in range(2)]
    began = time.monotonic()
    for number in range(kills):
        least = len(rows) * (number + 1) // (kills + 3)
        eventually(lambda: sum(bench.effects().values()) >= least * 0.6, timeout=240, every=0.2)  # noqa: B023 - at once
        running[number % 2].kill()
        running[number % 2] = bench.start(kind=kind)
    bench.wait_until_done(count, timeout=400)
    found = bench.effects()
    doubled = sum(times - 1 for times in found.values())
    print(f"{bench.kind}: {len(rows)} records of {count} ids in {time.monotonic() - began:.0f} s, {doubled} doubled")
    assert len(found) == count
    assert doubled <= (kills * 8 * 4 if bench.kind == "redis" else 0)


def test_kills_with_offsets(cluster, tmp_path, request):
    """The next offset in the handler's transaction gives one effect for each record, without ids."""
    bench = Bench(cluster.bootstrap, tmp_path, request.node.nodeid, "postgres", request)
    try:
        bench.create(bench.topic, 4)
        bench.produce_rows((b"k%d" % (number % 97), b"%d" % number) for number in range(5_000))
        running = [bench.start(kind="batch", offsets=1) for _ in range(2)]
        for number in range(2):
            eventually(lambda: len(bench.effects()) >= 1_000 * (number + 1), timeout=120, every=0.1)  # noqa: B023
            running[number].kill()
            running[number] = bench.start(kind="batch", offsets=1)
        bench.wait_until_done(5_000)
        found = bench.effects()
        assert len(found) == 5_000
        assert max(found.values()) == 1
    finally:
        bench.close()


@pytest.mark.parametrize("seconds", [7, pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_store_that_hangs_stops_the_reading(cluster, tmp_path, request, kind, seconds):
    """No record is handled while the store hangs, the process stays in its group, and each id has one effect."""
    server = request.getfixturevalue(kind)
    bench = Bench(cluster.bootstrap, tmp_path, request.node.nodeid, kind, request)
    try:
        bench.create(bench.topic, 4)
        bench.produce_rows((b"k%d" % (number % 97), b"%d" % number) for number in range(6_000))
        run = bench.start(lease=f"{seconds * 3}s", seconds=0.003)
        eventually(lambda: len(bench.effects()) >= 1_000, timeout=60, every=0.1, why=lambda: run.output)
        server.suspend()
        try:
            time.sleep(seconds)  # the outage itself: nothing is waited for
        finally:
            server.resume()
        assert run.is_running, run.output
        bench.wait_until_done(6_000)
        found = bench.effects()
        assert len(found) == 6_000
        assert max(found.values()) == 1
        # A frozen PostgreSQL keeps its connections alive, so calls wait for it; Redis has a time limit.
        assert kind == "postgres" or "the dedup store does not answer" in run.output
    finally:
        bench.close()
