"""A crash with records on retry topics, at the moment when copies are safe and nothing is committed."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from laneway import App, Retry, Topic
from laneway.testing import running
from laneway.testing._fake_member import FakeMember

orders = Topic("orders")


@contextmanager
def uncommitted(kafka, monkeypatch):
    """What happens inside is forgotten, except for what was written."""
    with monkeypatch.context() as patch:
        patch.setattr(FakeMember, "commit", lambda self: None)
        yield
        kafka.crash()


def test_an_old_record_that_is_read_again_does_not_have_the_last_word(monkeypatch):
    """Once, a handled record went behind the copy of its successor, so the older value was applied last."""
    app, seen = App("billing"), []

    @app.handler(orders, lanes=2, retry=Retry.steps("5s", mode="ordered"))
    def store(record):
        seen.append(record.raw)
        if record.raw == b"2" and record.attempt == 1:
            raise ConnectionError

    with running(app) as kafka:
        for value in (b"1", b"2", b"3"):
            kafka.produce(orders.message(value, key="k"))
        with uncommitted(kafka, monkeypatch):
            kafka.drain()
        kafka.drain()
        kafka.advance("1m")
        kafka.produce(orders.message(b"4", key="k"))
        kafka.drain()
        # 1 is repeated before the copies of 2 and 3; these were safe, so they are not copied again.
        assert seen == [b"1", b"2", b"1", b"2", b"3", b"4"]
        assert (kafka.tally.already_copied, len(kafka.records("orders.billing.retry.1"))) == (2, 2)


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_the_newest_record_of_a_unique_handler_is_never_superseded_by_an_older_one(monkeypatch, mode):
    """Once, the newest one was left out because its copy was safe, and an older one superseded that copy."""
    app, seen = App("billing"), []

    @app.unique_handler(orders, size=10, within="1s", retry=Retry.steps("5s", mode=mode))
    def store(batch):
        for record in batch:
            seen.append(record.raw)
            if record.attempt == 1 and len(seen) == 1:
                batch.retry(record)

    with running(app) as kafka:
        for value in (b"0", b"1", b"2"):
            kafka.produce(orders.message(value, key="k"))
        with uncommitted(kafka, monkeypatch):
            kafka.drain()
        kafka.drain()
        kafka.advance("1m")
        assert seen[-1] == b"2"


def test_a_copy_that_is_left_out_is_not_waited_for(monkeypatch):
    """Once, a record whose next copy was safe stayed in the backlog forever, and its key with it."""
    app, seen = App("billing"), []

    @app.handler(orders, lanes=2, retry=Retry.steps("5s", "5s", mode="ordered"))
    def store(record):
        seen.append((record.raw, record.attempt))
        if record.raw == b"1":
            raise ConnectionError

    with running(app) as kafka:
        kafka.produce(orders.message(b"1", key="k"))
        kafka.drain()
        with uncommitted(kafka, monkeypatch):
            kafka.advance("5s")
        kafka.drain()
        kafka.advance("1h")
        kafka.produce(orders.message(b"2", key="k"))
        kafka.drain()
        assert seen == [(b"1", 1), (b"1", 2), (b"1", 3), (b"2", 1)]
        assert len(kafka.errors(app)) == 1


def test_a_record_that_was_parked_is_not_parked_again(monkeypatch):
    """Its copy on the error topic is found after the crash."""
    app, seen = App("billing"), []

    @app.handler(orders, lanes=2)
    def store(record):
        seen.append(record.raw)
        raise ValueError

    with running(app) as kafka:
        kafka.produce(orders.message(b"1", key="k"))
        with uncommitted(kafka, monkeypatch):
            kafka.drain()
        kafka.drain()
        assert (seen, len(kafka.errors(app)), kafka.tally.already_copied) == ([b"1"], 1, 1)


def test_a_reset_runs_everything_again_and_a_crash_after_it_does_not(monkeypatch):
    """A tool that sets the offsets leaves no word: what was copied before it is no reason to leave a record out."""
    app, calls = App("a"), []

    @app.handler(Topic("t"))
    def handle(record):
        calls.append(record.raw)
        if record.raw == b"bad":
            raise ValueError

    with running(app) as kafka:
        for value in (b"bad", b"good"):
            kafka.produce_raw("t", value, key=b"k", partition=0)
        kafka.drain()
        kafka.crash()
        kafka.commit("a", "t", 0, 0)
        with uncommitted(kafka, monkeypatch):
            kafka.drain()
            assert (calls, kafka.tally.already_copied) == ([b"bad", b"good"] * 2, 0)
        kafka.drain()
        assert (calls, kafka.tally.already_copied) == ([b"bad", b"good"] * 2 + [b"good"], 1)
        assert len(kafka.errors(app)) == 2
