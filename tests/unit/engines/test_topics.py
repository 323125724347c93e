"""The topics of an app, looked at for their lag."""

from __future__ import annotations

import pytest

from laneway import App, Topic
from laneway._runtime.topics import LagReader
from laneway.errors import AdminError
from laneway.settings import load


@pytest.fixture
def app():
    made = App("billing")

    @made.handler(Topic("orders"))
    def charge(_):
        pass

    @made.handler(Topic("returns"))
    def refund(_):
        pass

    return made


def test_clients_are_kept_from_look_to_look(app, monkeypatch):
    """A run asks once a second for as long as it lives; a cluster needs one client, however many topics it has."""
    made = []

    class Admin:
        def __init__(self, options):
            made.append(self)

        def lag(self, group, topic):
            assert group == "billing"
            return {0: (None, 4), 1: (3, 5)} if topic == "orders" else {0: (1, 2)}

    monkeypatch.setattr("laneway._runtime.topics.Admin", Admin)
    lag = LagReader(app, load()).read

    assert [lag(), lag(), lag()] == [7, 7, 7]
    assert len(made) == 1


def test_a_lag_that_cannot_be_known_is_none(app, monkeypatch):
    """Nobody answers; the next look may be lucky."""
    answers = [AdminError("nobody"), {0: (0, 1)}, {0: (0, 1)}]

    class Admin:
        def __init__(self, options):
            pass

        def lag(self, group, topic):
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setattr("laneway._runtime.topics.Admin", Admin)
    lag = LagReader(app, load()).read

    assert [lag(), lag()] == [None, 2]
