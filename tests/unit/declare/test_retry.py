"""Whether, and after how long, a failed record is tried again."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from laneway import Reject, Retry, RetryAfter
from laneway._core.decide import Park, TryAgain, judge
from laneway.errors import CodecError, DeclarationError, HandlerTimeoutError

SECOND = timedelta(seconds=1)
RETRY = Retry(attempts=3, backoff="1s", backoff_max="1m", jitter=0)


@pytest.mark.parametrize(
    ("error", "attempt", "expected"),
    [
        (ValueError(), 1, TryAgain(SECOND)),
        (ValueError(), 2, TryAgain(2 * SECOND)),
        (ValueError(), 3, Park()),
        (ValueError(), 4, Park()),
        (HandlerTimeoutError(), 1, TryAgain(SECOND)),
        (Reject(), 1, Park()),
        (CodecError(), 1, Park()),
        (RetryAfter(5), 1, TryAgain(5 * SECOND)),
        (RetryAfter(0.5), 2, TryAgain(SECOND / 2)),
        (RetryAfter("2m"), 1, TryAgain(120 * SECOND)),
        (RetryAfter(7 * SECOND), 1, TryAgain(7 * SECOND)),
        (RetryAfter(5), 3, Park()),
    ],
)
def test_a_failure_is_judged(error, attempt, expected):
    """The error and the attempts made decide, nothing else."""
    assert expected == judge(error, attempt, RETRY)


@pytest.mark.parametrize(
    ("delay", "pauses"),
    [("2s", [2] * 10), (0, [0] * 10), (None, [1, 2, 4, 8, 10, 10, 10, 10, 10, 10]), ("soon", [1, 2, 4])],
)
def test_a_policy_without_retries_gives_those_that_are_asked_for(delay, pauses):
    """Once, `RetryAfter("2s")` parked its record at once; ten are the most, so that no record is retried forever."""
    retry = Retry(backoff="1s", backoff_max="10s", jitter=0)

    verdicts = [judge(RetryAfter(delay), attempt, retry) for attempt in range(1, 13)]

    assert verdicts[: len(pauses)] == [TryAgain(pause * SECOND) for pause in pauses]
    assert verdicts[10:] == [Park()] * 2


@pytest.mark.parametrize(
    ("retriable", "expected"),
    [
        (None, [True, True, True]),
        (ConnectionError, [True, False, False]),
        ((ConnectionError, KeyError), [True, True, False]),
        ((), [False, False, False]),
        (lambda error: error.args == (1,), [False, False, True]),
        (lambda error: error.no_such_thing, [True, True, True]),
    ],
)
def test_what_is_not_retriable_is_parked_at_once(retriable, expected):
    """On every step; signals mean what they say, whatever is retriable."""
    retry = Retry.steps("5s", "1m", attempts=2, retriable=retriable)
    errors = [ConnectionResetError(), KeyError("k"), ValueError(1)]

    for step in range(3):
        assert [judge(error, 1, retry, step) != Park() for error in errors] == expected
        assert judge(RetryAfter("1s"), 1, retry, step) == TryAgain(SECOND)
        assert judge(Reject(), 1, retry, step) == Park()


def test_what_is_retriable_travels():
    """It goes to other processes with the app, and is kept when a configuration changes the rest."""
    retry = pickle.loads(pickle.dumps(Retry(3, retriable=(ConnectionError,))))  # noqa: S301 - our own bytes

    assert retry == Retry(3, retriable=(ConnectionError,))
    assert replace(retry, attempts=5).retriable == (ConnectionError,)
    assert judge(ValueError(), 1, retry) == Park()


@pytest.mark.parametrize("delay", ["5", "soon", "", None, float("nan"), float("inf"), 1e300, -timedelta(seconds=1)])
def test_a_delay_that_is_none_does_not_end_the_run(delay):
    """Once, RetryAfter("5") raised in the judge and took the whole process down; it waits as any failure does."""
    assert judge(RetryAfter(delay), 1, RETRY) == TryAgain(SECOND)


def test_one_attempt_is_the_default():
    """A handler that is not idempotent is not repeated unasked."""
    assert judge(ValueError(), 1, Retry()) == Park()


def test_the_pause_doubles_up_to_its_limit():
    """Each pause is twice the one before, and never above backoff_max."""
    retry = Retry(9, "1s", "10s", jitter=0)

    assert [retry.pause(attempt).total_seconds() for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@given(
    st.one_of(st.integers(1, 64), st.integers(1, 10**9)),
    st.timedeltas(timedelta(0), timedelta(days=400)),
    st.timedeltas(timedelta(0), timedelta(days=400)),
    st.floats(0, 1),
    st.floats(0, 1, exclude_max=True),
)
def test_a_pause_stays_in_its_bounds(attempt, backoff, backoff_max, jitter, drawn):
    """Whatever the attempt, a pause is between zero and backoff_max; a long backoff once overflowed at attempt 31."""
    pause = Retry(2, backoff, backoff_max, jitter).pause(attempt, lambda: drawn)

    assert timedelta(0) <= pause <= backoff_max


@given(st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_jitter_only_shortens_a_pause(jitter, drawn):
    """Between none and the given part of a pause is taken off."""
    pause = Retry(2, "100s", "100s", jitter).pause(1, lambda: drawn).total_seconds()

    assert 100 * (1 - jitter) - 1e-6 <= pause <= 100


def test_jitter_is_random_by_default():
    """Keys that failed together do not come back together."""
    assert len({Retry(2, "10s", "10s", 0.5).pause(1) for _ in range(20)}) > 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attempts": 0}, "Retry(attempts=0): attempts includes the first call, so it must be 1 or more"),
        ({"jitter": 1.5}, "Retry(jitter=1.5): jitter must be between 0 and 1"),
        ({"jitter": -0.1}, "Retry(jitter=-0.1): jitter must be between 0 and 1"),
        ({"backoff": "soon"}, "Retry: 'soon' is not a duration"),
        ({"backoff_max": 5}, "Retry: 5 has no unit"),
        ({"retriable": 503}, "Retry(retriable=503): give an exception type, several, or a function of the error"),
        ({"retriable": int}, "give an exception type, several, or a function of the error"),
        ({"retriable": [OSError]}, "give an exception type, several, or a function of the error"),
        ({"retriable": (OSError, "503")}, "give an exception type, several, or a function of the error"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(fields, message):
    """The message names the field and what it may be."""
    with pytest.raises(DeclarationError) as caught:
        Retry(**fields)

    assert message in str(caught.value)
