"""The pytest plugin: a `fake_kafka` and a `fake_clock` for each test, without an import."""

from __future__ import annotations

import pytest

from laneway.testing._kafka import FakeKafka
from laneway.testing._virtual_time import FakeClock

__all__ = ["fake_clock", "fake_kafka"]


@pytest.fixture
def fake_clock() -> FakeClock:
    """Virtual time; the same clock that this test's `fake_kafka` has."""
    return FakeClock()


@pytest.fixture
def fake_kafka(fake_clock: FakeClock) -> FakeKafka:
    """An empty Kafka in memory, to be given to `running(app, kafka=fake_kafka)` or `FakeEngine(fake_kafka)`."""
    return FakeKafka(clock=fake_clock)
