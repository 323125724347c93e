"""What a timed pass makes of the tallies it gets: when the first record was handled, and what counts."""

from __future__ import annotations

import pytest

from laneway.devkit.bench import WORKLOADS, _measure
from laneway.observe import BatchHandled, Tally


@pytest.fixture(name="timed")
def _timed(monkeypatch):
    monkeypatch.setattr(_measure, "_new_topic", lambda settings: "bench-topic")
    made = _measure._TimedPass(next(iter(WORKLOADS.values())), None, "nowhere", set())
    made._began = 1_000.0
    return made


def told(timed, **fields):
    timed.event(BatchHandled("bench-topic", 1, Tally(**fields)))


def test_a_tally_without_calls_is_no_start(timed):
    """An engine that reports every second may do so before the first call, with no time of one."""
    told(timed)
    assert timed.cold_start == 0.0
    told(timed, handled=5, calls=5, first=1_002.5, last=1_003.0)

    assert timed.cold_start == 2.5


def test_the_first_call_counts(timed):
    """Later ones, and seconds without any, do not change when it began."""
    told(timed, handled=5, calls=5, first=1_002.5, last=1_003.0)
    told(timed)
    told(timed, handled=5, calls=5, first=1_009.0, last=1_010.0)

    assert timed.cold_start == 2.5


def test_only_what_begins_in_time_is_timed(timed):
    """Records of the warm-up are seen and not measured, and a tally without calls is no batch."""
    told(timed, handled=5, calls=5, first=1_002.0, last=1_003.0)
    timed._timed_from = 1_100.0
    told(timed, handled=7, calls=7, first=1_099.0, last=1_101.0)
    told(timed)
    told(timed, handled=11, calls=11, first=1_101.0, last=1_104.0)
    told(timed, handled=13, calls=13, first=1_104.0, last=1_106.0)

    assert timed._seen == 36
    assert (timed.batches, timed.tally.handled) == (2, 24)
    assert (timed.tally.first, timed.tally.last) == (1_101.0, 1_106.0)
