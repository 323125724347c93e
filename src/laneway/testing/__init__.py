"""Tests of apps without a broker, without Spark and without waiting."""

from laneway.testing._kafka import FakeKafka
from laneway.testing._running import FakeEngine, FakeReport, running
from laneway.testing._virtual_time import FakeClock

__all__ = ["FakeClock", "FakeEngine", "FakeKafka", "FakeReport", "running"]
