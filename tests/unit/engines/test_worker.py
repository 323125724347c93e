"""What a worker process keeps from task to task."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from laneway._engines.spark import worker as _worker


class FakeWorker:
    def __init__(self, stream):
        self.stream, self.used, self.is_closed = stream, 0.0, False

    def close(self):
        self.is_closed = True


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(_worker, "Worker", FakeWorker)
    monkeypatch.setattr(_worker, "_workers", {})
    monkeypatch.setattr(_worker.time, "monotonic", lambda: now.seconds)
    return now


def ask(name):
    return _worker.worker_of(SimpleNamespace(name=f"{name}/orders@main", digest="d", errors=None))


def test_clients_are_kept_from_task_to_task(clock):
    """Also over a pause, as long as nothing else begins."""
    first = ask("billing")
    clock.seconds += 10_000
    assert ask("billing") is first
    assert not first.is_closed


def test_clients_of_streams_that_are_over_are_closed(clock):
    """Once, a session kept those of every app that it had ever run: 108 clients, 400 threads in a test run."""
    over, living = ask("first"), ask("second")
    clock.seconds += 200
    ask("second")
    clock.seconds += 200
    ask("third")
    assert (over.is_closed, living.is_closed) == (True, False)
    assert ask("second") is living
    assert ask("first") is not over
