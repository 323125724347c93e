"""Stores that are away, lose keys, or answer late."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import threading
import uuid

import pytest

from laneway import App, DirectEngine, Retry, Topic, by_header
from laneway.dedup import DedupClient, HandlerDedup, PostgresDedup, RedisDedup, SqliteDedup
from laneway.errors import ClaimedError, DeclarationError, DedupStoreError, Duplicate
from laneway.settings import load
from laneway.testing import FakeKafka, running
from support.proxy import Proxy
from support.stores import redis_server
from support.waiting import eventually

orders = Topic("orders")


def record(number, offset=None):
    return orders.record(b"v%d" % number, headers=[("id", b"%d" % number)], offset=number if offset is None else offset)


class Stage:
    """A handler's stage, as a worker has it."""

    def __init__(self, store, scope):
        self.store, self.client = store, DedupClient(store, scope)
        self.stage = HandlerDedup(store, self.client, scope)

    def verdict(self, one):
        """What a call of the handler would meet: nothing, or an error."""
        self.stage.begin([one])
        return self._checked(one)

    def _checked(self, one):
        try:
            self.stage.check(one)
        except Exception as error:  # noqa: BLE001 - it is what is asked for
            self.stage.ended([one])
            return error
        return None

    async def verdict_async(self, one):
        await self.stage.begin_async([one])
        return self._checked(one)

    def handled(self, *records):
        """The calls have ended; waits until their marks are there."""
        found = list(self.stage.mark(records))
        self.stage.ended(records)
        eventually(lambda: (found.extend(self.stage.confirmed()), len(found) == len(records))[1], timeout=30)

    def close(self):
        self.stage.close()
        assert self.client.close()


@pytest.fixture
def scope():
    return f"shop.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def stages():
    kept = []

    def make(store, scope):
        kept.append(Stage(store, scope))
        return kept[-1]

    yield make
    for stage in kept:
        stage.close()


@pytest.mark.store
def test_a_cancelled_call_that_still_wrote_the_key(redis, scope, stages):
    """The answer to a claim comes after its caller was cancelled: the key is written, and given back at once."""
    with Proxy(redis.port) as proxy:
        ours = stages(RedisDedup(f"redis://127.0.0.1:{proxy.port}/0", id=by_header("id")), scope)
        other = stages(RedisDedup(redis.url, id=by_header("id")), scope)
        assert ours.verdict(record(0)) is None  # connected

        async def cancelled():
            proxy.stall(0.3)
            task = asyncio.create_task(ours.verdict_async(record(1)))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        eventually(lambda: other.verdict(record(1)) is None, timeout=5)


@pytest.mark.store
@pytest.mark.slow
def test_ten_thousand_cancelled_calls_and_no_crossed_answer(redis, scope, stages):
    """Every answer that arrives is that of its own id, and no id stays claimed.

    Half of the ids are done, and half of the calls are cancelled at a random moment.
    """
    count = 10_000
    store = RedisDedup(redis.url, id=by_header("id"))
    before = stages(store, scope)
    done = [record(number) for number in range(0, count, 2)]
    before.stage.begin(done)
    before.handled(*done)
    with Proxy(redis.port) as proxy:
        ours = stages(RedisDedup(f"redis://127.0.0.1:{proxy.port}/0", id=by_header("id")), scope)
        rng, answers, stalls = random.Random(3), {}, [0]

        async def one(number):
            answers[number] = await ours.verdict_async(record(number))

        async def all_of_them():
            for at in range(0, count, 500):
                tasks = [asyncio.create_task(one(number)) for number in range(at, at + 500)]
                if rng.random() < 0.3:
                    proxy.stall(0.1)
                    stalls[0] += 1
                await asyncio.sleep(rng.random() * 0.02)
                for task in rng.sample(tasks, 250):
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run(all_of_them())
        assert stalls[0] >= 3
        crossed = [number for number, answer in answers.items() if isinstance(answer, Duplicate) != (number % 2 == 0)]
        assert crossed == []
        assert len(answers) >= count // 2
        ours.close()
    left = [number for number in range(1, count, 2) if store.get(str(number), scope=scope) is not None]
    assert left == []


@pytest.mark.parametrize("seconds", [2, pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.store
def test_records_wait_while_redis_is_stopped(scope, stages, seconds):
    """No record is called without a claim, marks wait, and both go on when Redis is back."""
    with redis_server() as server:
        ours = stages(RedisDedup(server.url, id=by_header("id")), scope)
        assert ours.verdict(record(1)) is None
        server.kill()
        over = threading.Event()
        threading.Timer(seconds, lambda: (server.start(), over.set())).start()
        assert ours.stage.mark([record(1)]) == []
        found = []
        while not over.is_set():
            verdict = ours.verdict(record(2))
            assert isinstance(verdict, (DedupStoreError, ClaimedError)) or over.is_set(), verdict
            found += ours.stage.confirmed()
            over.wait(0.1)
        assert found == []
        eventually(lambda: ours.verdict(record(2)) is None, timeout=10)
        eventually(lambda: [each.offset for each in ours.stage.confirmed()] == [1], timeout=10)
        assert server.url
        assert ours.store.get("1", scope=scope).state == "done"


@pytest.mark.store
def test_an_app_that_rather_goes_on_is_not_stopped(scope, stages):
    """With ``on_outage="continue"`` records are called without a claim, and counted."""
    with redis_server() as server:
        ours = stages(RedisDedup(server.url, id=by_header("id"), on_outage="continue"), scope)
        assert ours.verdict(record(1)) is None
        ours.handled(record(1))
        server.kill()
        eventually(lambda: ours.verdict(record(2)) is None and ours.stage.unclaimed == 1, timeout=10)
        assert list(ours.stage.mark([record(2)])) != []
        server.start()


@pytest.mark.store
def test_redis_that_has_lost_its_keys(scope, stages):
    """After FLUSHALL ids are handled again (docs/once.md); what is in work is marked, and tokens still grow."""
    import redis as client

    with redis_server() as server:
        ours = stages(RedisDedup(server.url, id=by_header("id")), scope)
        assert ours.verdict(record(1)) is None
        assert ours.verdict(record(2)) is None
        ours.handled(record(1))
        before = ours.store.get("2", scope=scope).token
        with client.Redis.from_url(server.url) as plain:
            plain.flushall()
        assert ours.verdict(record(1, offset=11)) is None
        assert ours.store.get("1", scope=scope).token > before
        ours.handled(record(2))
        assert ours.store.get("2", scope=scope).state == "done"


@pytest.mark.store
def test_redis_that_evicts_keys_is_refused_at_the_start():
    """Its promise could not be kept; an app that accepts that says so."""
    with redis_server("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru") as server:
        app = App("shop", dedup=RedisDedup(server.url))

        @app.handler(orders)
        def handle(record): ...

        with pytest.raises(DeclarationError, match="maxmemory-policy is allkeys-lru"):
            DirectEngine(load(overrides={"brokers": "127.0.0.1:1"})).run(app)
        RedisDedup(server.url, on_outage="continue").check()


@pytest.mark.store
@pytest.mark.parametrize("when", ["before", "during", "lost answer"])
def test_a_backend_that_is_terminated_at_commit(postgres, when):
    """Whether the commit has happened is found out: the record has one effect in any case."""
    import psycopg

    table = f"effect_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres.dsn, autocommit=True) as admin, Proxy(postgres.port) as proxy:
        admin.execute(f"CREATE TABLE {table} (value text)")
        if when != "before":
            # A commit takes half a second, so that something can happen to it.
            admin.execute(
                "CREATE OR REPLACE FUNCTION slow() RETURNS trigger "
                "AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END' LANGUAGE plpgsql"
            )
            admin.execute(
                f"CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED "
                "FOR EACH ROW EXECUTE FUNCTION slow()"
            )
        store = PostgresDedup(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", id=by_header("id"))
        app, faults = App(f"bank-{uuid.uuid4().hex[:6]}", dedup=store), [b"v2"]

        @app.handler(orders, retry=Retry(attempts=1))
        def pay(record):
            with store.transaction(record) as sql:
                sql.execute(f"INSERT INTO {table} VALUES (%s)", [record.value.decode()])  # noqa: S608
                if record.value in faults:
                    faults.remove(record.value)
                    break_(sql.info.backend_pid)

        def break_(pid):
            def terminate():
                admin.execute("SELECT pg_terminate_backend(%s)", [pid])

            if when == "before":
                terminate()
            else:
                threading.Timer(0.2, terminate if when == "during" else proxy.reset_all).start()

        kafka = FakeKafka(partitions=1)
        for number in range(5):
            kafka.produce(orders.message(b"v%d" % number, headers=[("id", b"%d" % number)]))
        with running(app, kafka=kafka):
            kafka.finish()
        assert not faults
        rows = admin.execute(f"SELECT value FROM {table} ORDER BY value").fetchall()  # noqa: S608
        assert [row[0] for row in rows] == [f"v{number}" for number in range(5)]
        states = admin.execute("SELECT count(*) FROM laneway_dedup WHERE scope = %s AND is_done", [f"{app.name}.pay"])
        assert states.fetchone()[0] == 5


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_sqlite_on_a_full_disk(tmp_path, scope, stages):
    """Marks wait and no claim is given until there is room again; nothing that was marked is lost."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        ours = stages(SqliteDedup(folder / "ids.db", id=by_header("id")), scope)
        first = [record(number) for number in range(50)]
        ours.stage.begin(first)
        ours.handled(*first)
        waiting = [record(number) for number in range(50, 80)]
        ours.stage.begin(waiting)
        ballast = folder / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 1024)
            except OSError:
                pass
        refused = None
        for number in range(1_000, 6_000):
            refused = ours.verdict(record(number))
            if refused is not None:
                break
        assert isinstance(refused, DedupStoreError), refused
        assert "full" in str(refused)
        assert ours.stage.mark(waiting) == []
        ours.stage.ended(waiting)
        ballast.unlink()
        found = []
        eventually(lambda: (found.extend(ours.stage.confirmed()), len(found) == 30)[1], timeout=20)
        again = [ours.verdict(record(number, offset=9_000 + number)) for number in range(80)]
        assert all(isinstance(verdict, Duplicate) for verdict in again)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
