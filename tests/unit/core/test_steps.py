"""The ladder: how many calls a record gets, where it waits between them, and where it ends."""

from __future__ import annotations

from datetime import timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from laneway import Reject, Retry, RetryAfter
from laneway._core.decide import Defer, Park, TryAgain, judge
from laneway.errors import CodecError, DeclarationError

SECOND = timedelta(seconds=1)
MODES = ("blocking", "unordered", "ordered")


def ladder(mode="unordered", attempts=1, delays=("5s", "1m")):
    return Retry.steps(*delays, mode=mode, attempts=attempts, backoff="1s", backoff_max="1m", jitter=0)


def climb(retry, error=None):
    """What is decided, call by call, about a record that always fails: as the processors of the steps ask for it."""
    error = error or ValueError()
    verdicts, step, calls = [], 0, 0
    while not verdicts or verdicts[-1] != Park():
        calls += 1
        verdicts.append(judge(error, calls, retry, step))
        if isinstance(verdicts[-1], Defer):
            step, calls = verdicts[-1].step, 0
        assert len(verdicts) < 10_000, "it never ends"
    return verdicts


@pytest.mark.parametrize("mode", MODES)
def test_steps_are_kept_as_durations(mode):
    """Texts and timedeltas may be mixed; everything else has the defaults of `Retry`."""
    retry = Retry.steps("5s", timedelta(minutes=1), mode=mode)

    assert retry.delays == (5 * SECOND, 60 * SECOND)
    assert retry == Retry(1, "100ms", "10s", 0.2, (5 * SECOND, 60 * SECOND), mode)


@pytest.mark.parametrize(("mode", "hops"), [("blocking", 0), ("unordered", 2), ("ordered", 2)])
def test_only_steps_on_topics_are_hops(mode, hops):
    """A record that waits in place needs no topic."""
    assert hops == ladder(mode).hops
    assert Retry(3).hops == 0


def test_topics_are_the_default():
    """A key that waits for minutes is worse than records out of order, unless one says so."""
    assert Retry.steps("5s").mode == "unordered"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Retry.steps, 'Retry.steps(): give at least one delay, such as Retry.steps("5s", "1m")'),
        (lambda: Retry.steps("soon"), "Retry: 'soon' is not a duration"),
        (lambda: Retry.steps("5s", 5), "Retry: 5 has no unit"),
        (lambda: Retry.steps(-SECOND), "is negative; a duration is zero or more"),
        (lambda: Retry.steps("5s", mode="later"), "Retry(mode='later'): use 'blocking', 'unordered' or 'ordered'"),
        (lambda: Retry.steps("5s", attempts=0), "attempts includes the first call, so it must be 1 or more"),
        (lambda: Retry.steps(*["1s"] * 21), "Retry: 21 steps; at most 20 are allowed"),
    ],
)
def test_a_ladder_that_cannot_work_is_refused(make, message):
    """The message says what may be given."""
    with pytest.raises(DeclarationError) as caught:
        make()

    assert message in str(caught.value)


def test_twenty_steps_are_allowed():
    """Each is a topic with as many partitions as its source."""
    assert Retry.steps(*["1s"] * 20).hops == 20


def again(*seconds):
    return [TryAgain(pause * SECOND) for pause in seconds]


@pytest.mark.parametrize(
    ("mode", "attempts", "expected"),
    [
        ("unordered", 1, [Defer(1), Defer(2), Park()]),
        ("ordered", 1, [Defer(1), Defer(2), Park()]),
        ("blocking", 1, [*again(5, 60), Park()]),
        ("unordered", 2, [*again(1), Defer(1), *again(1), Defer(2), *again(1), Park()]),
        ("ordered", 2, [*again(1), Defer(1), *again(1), Defer(2), *again(1), Park()]),
        ("blocking", 2, [*again(1, 5, 1, 60, 1), Park()]),
        ("unordered", 3, [*again(1, 2), Defer(1), *again(1, 2), Defer(2), *again(1, 2), Park()]),
        ("ordered", 3, [*again(1, 2), Defer(1), *again(1, 2), Defer(2), *again(1, 2), Park()]),
        ("blocking", 3, [*again(1, 2, 5, 1, 2, 60, 1, 2), Park()]),
    ],
)
def test_a_record_that_always_fails_climbs_step_by_step(mode, attempts, expected):
    """The back-off begins anew on each step."""
    assert expected == climb(ladder(mode, attempts))


@given(
    st.sampled_from(MODES),
    st.integers(1, 3),
    st.lists(st.timedeltas(timedelta(0), timedelta(days=2)), min_size=1, max_size=20),
    st.sampled_from([ValueError(), RetryAfter(), RetryAfter(0), RetryAfter("nonsense")]),
)
def test_every_record_that_always_fails_is_parked_in_the_end(mode, attempts, delays, error):
    """After as many calls as were asked for on each step, the source topic being one more: never sooner or later."""
    retry = Retry.steps(*delays, mode=mode, attempts=attempts)
    verdicts = climb(retry, error)

    assert len(verdicts) == attempts * (1 + len(delays))
    assert [verdict.step for verdict in verdicts if isinstance(verdict, Defer)] == list(range(1, retry.hops + 1))
    assert verdicts.count(Park()) == 1


@given(
    st.sampled_from(MODES),
    st.integers(1, 3),
    st.lists(st.timedeltas(timedelta(0), timedelta(days=2)), min_size=1, max_size=20),
    st.lists(st.one_of(st.none(), st.timedeltas(timedelta(0), timedelta(days=3))), min_size=1, max_size=10),
)
def test_a_record_that_asks_for_delays_never_waits_less_and_never_has_more_calls(mode, attempts, delays, asked):
    """Whatever it asks for, the ladder is climbed upwards and ends; copies say no more calls than are believed."""
    retry = Retry.steps(*delays, mode=mode, attempts=attempts)
    step, calls, total = 0, 0, 0
    while True:
        calls, total = calls + 1, total + 1
        delay = asked[total % len(asked)]
        verdict = judge(ValueError() if delay is None else RetryAfter(delay), calls, retry, step)
        if verdict == Park():
            break
        if isinstance(verdict, Defer):
            assert verdict.step > step
            assert total <= attempts * verdict.step
            step, calls = verdict.step, 0
        waits = retry.delays[step - 1] if isinstance(verdict, Defer) else verdict.pause
        assert delay is None or waits >= delay
    assert total <= attempts * (1 + len(delays))


@pytest.mark.parametrize(
    ("asked", "attempt", "step", "expected"),
    [
        ("2s", 1, 0, Defer(1)),
        ("5s", 1, 0, Defer(1)),
        ("6s", 1, 0, Defer(2)),
        ("6s", 1, 1, Defer(2)),
        ("2m", 1, 0, TryAgain(120 * SECOND)),
        ("2m", 2, 0, TryAgain(120 * SECOND)),
        ("2m", 3, 0, Park()),
        ("2m", 1, 1, TryAgain(120 * SECOND)),
        ("2m", 1, 2, Park()),
        ("2s", 2, 0, Defer(2)),
        (None, 2, 0, Defer(2)),
        ("1ms", 1, 2, Park()),
    ],
)
@pytest.mark.parametrize("mode", ["unordered", "ordered"])
def test_a_step_waits_as_long_as_is_asked_for(mode, asked, attempt, step, expected):
    """Once, the delay was dropped. What no step left waits for is waited for in place, instead of the next step."""
    assert judge(RetryAfter(asked), attempt, ladder(mode), step) == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("error", [Reject(), CodecError()])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_what_cannot_be_helped_is_parked_from_any_step(mode, error, step):
    """Trying again would change nothing, now or in ten minutes."""
    assert judge(error, 1, ladder(mode, attempts=3), step) == Park()


@pytest.mark.parametrize(
    ("mode", "attempts", "attempt", "step", "expected"),
    [
        ("unordered", 2, 1, 0, TryAgain(7 * SECOND)),
        ("unordered", 2, 2, 0, Defer(2)),
        ("ordered", 2, 2, 1, Defer(2)),
        ("ordered", 2, 2, 2, Park()),
        ("blocking", 1, 1, 0, TryAgain(7 * SECOND)),
        ("blocking", 1, 3, 0, Park()),
    ],
)
def test_a_pause_that_is_asked_for_is_kept(mode, attempts, attempt, step, expected):
    """With an attempt left the record waits as long as it asks; without one it goes on to a step that waits as long."""
    assert expected == judge(RetryAfter(7), attempt, ladder(mode, attempts), step)


@pytest.mark.parametrize("delay", [0, 0.0, "0s", timedelta(0)])
def test_no_pause_at_all_can_be_asked_for(delay):
    """0 is not the same as not saying how long."""
    assert judge(RetryAfter(delay), 1, ladder(attempts=2)) == TryAgain(timedelta(0))
    assert judge(RetryAfter(delay), 1, ladder("blocking")) == TryAgain(timedelta(0))
    assert judge(RetryAfter(), 1, ladder(attempts=2)) == TryAgain(SECOND)


def test_a_ladder_that_became_shorter_lets_nothing_fall():
    """Records may still wait on a step that the policy no longer has."""
    assert judge(ValueError(), 1, ladder(delays=("5s",)), step=3) == Park()
