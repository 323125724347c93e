"""Runs over error topics on Spark."""

from __future__ import annotations

from types import SimpleNamespace

from laneway._engines.spark import from_settings
from laneway._engines.spark.from_settings import error_streams, master_of
from laneway._engines.spark.query_spec import ErrorPart, QuerySpec


def test_each_plan_is_a_query_of_its_own(monkeypatch):
    """It ends where the plan ends, is one task, and passes over what retention has taken."""
    empty = dict.fromkeys(("app", "topic", "routes", "payload", "paths", "client", "consumer", "producer"), ())
    monkeypatch.setattr(from_settings, "stream_of", lambda *_: QuerySpec(**empty))
    plan = SimpleNamespace(app=SimpleNamespace(name="billing.errors"), routes=[], ends={0: 2}, partitions={"orders": 4})
    (stream,) = error_streams([plan], None, b"x")
    assert stream.errors == ErrorPart({0: 2}, {"orders": 4})
    assert (stream.tasks, stream.skip_lost, stream.start) == (1, True, "earliest")


def test_runs_beside_an_app_have_slots_of_their_own():
    """A slow handler of parked records must not take those of the app's topics."""
    assert master_of("local[*]", [], 3) == "local[5,8]"
    assert master_of("local[2]", [], 3) == "local[2]"
