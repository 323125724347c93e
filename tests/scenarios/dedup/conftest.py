"""Real stores, each started once, and emptied by taking another scope or file."""

from __future__ import annotations

import pytest

from laneway.dedup import MemoryDedup, PostgresDedup, RedisDedup, SqliteDedup
from support.stores import postgres_server, redis_server

KINDS = [
    "memory",
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.store),
    pytest.param("redis", marks=pytest.mark.store),
]


@pytest.fixture(scope="session")
def redis():
    with redis_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres():
    with postgres_server() as server:
        yield server


@pytest.fixture(params=KINDS)
def make_store(request, tmp_path):
    """A function that gives stores of one kind on the same ids, with other options each."""
    if request.param == "memory":
        kept = MemoryDedup()

        def memory(**options):
            store = MemoryDedup(**options)
            store._rows, store._lock = kept._rows, kept._lock
            return store

        return memory
    if request.param == "sqlite":
        return lambda **options: SqliteDedup(tmp_path / "ids.db", **options)
    server = request.getfixturevalue(request.param)
    if request.param == "postgres":
        return lambda **options: PostgresDedup(server.dsn, **options)
    return lambda **options: RedisDedup(server.url, **options)
