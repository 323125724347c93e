"""The view shows what engines tell it, on a terminal and elsewhere."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest

from laneway._runtime.lifecycle import State
from laneway.cli._view import RunView, _spark_line
from laneway.events import CopyFailed, RecordHandled, RecordParked, RecordRetried
from laneway.observe import Tally


class Terminal(io.StringIO):
    """Output that says it is a terminal."""

    def isatty(self):
        return True


class Counts:
    """Half of the goal."""

    def counts(self):
        return Tally(handled=500)


def tally(**changes):
    """Half a second of work."""
    given = {"read": 100, "handled": 90, "parked": 10, "retried": 3, "lanes_busy": 12.0, "first": 1.0, "last": 1.5}
    return Tally(**{**given, **changes})


def test_a_batch_is_a_line_when_there_is_no_terminal():
    """Records, throughput against the ideal, lanes, retries and parked records are all in it."""
    output = io.StringIO()
    with RunView("billing", ideal=400.0, output=output) as view:
        view.batch_done("orders", 4, tally())

    expected = "batch 4 of orders: 100 records at 200/s (50% of the ideal 400), 12 lanes busy, 3 retried, 10 parked\n"
    assert output.getvalue() == expected


def test_an_empty_batch_says_nothing():
    """Nothing was read, so nothing is said."""
    output = io.StringIO()
    with RunView("billing", output=output) as view:
        view.batch_done("orders", 4, Tally())

    assert output.getvalue() == ""


def test_quiet_says_only_what_is_unusual():
    """A state with a detail is a problem; one without is not."""
    output = io.StringIO()
    with RunView("billing", quiet=True, output=output) as view:
        view.state_changed(State.STARTING, "")
        view.state_changed(State.INITIALISING, "waiting for Kafka")
        view.batch_done("orders", 1, tally())

    assert output.getvalue() == "billing: initialising (waiting for Kafka)\n"


def test_batches_add_up():
    """The total is the sum of the batches."""
    view = RunView("billing", quiet=True)
    for number in range(3):
        view.batch_done("orders", number, tally())

    assert (view.total.handled, view.total.parked) == (270, 30)


def test_a_terminal_gets_a_panel():
    """Throughput, lag and progress stand in it, and no line is printed."""
    output = Terminal()
    with RunView("billing", ideal=400.0, goal=1_000, source=Counts(), output=output) as view:
        view.state_changed(State.CONSUMING, "")
        view.batch_done("orders", 1, tally())
        view._measure()
        view._lag = 1_234
        view._live.update(view._panel(), refresh=True)
    text = output.getvalue()

    assert [word for word in ("billing", "1,234 records", "500 of 1,000", "of the ideal 400") if word not in text] == []
    assert "batch 1" not in text


def test_what_a_record_brought_along_is_not_markup():
    """An error text with brackets is shown as it is and breaks nothing."""
    event = RecordParked("charge", "orders", 0, 7, 1, "ValueError: [/bold] [red]x", "orders.error")
    output = Terminal()
    with RunView("billing", output=output) as view:
        view.batch_done("orders", 1, tally(events=[event]))
        view._live.update(view._panel(), refresh=True)

    assert "[/bold] [red]x" in output.getvalue()


PLACE = ("charge", "orders", 0, 7, 1)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([RecordParked(*PLACE, "ValueError: no", "orders.error")], ["  parked orders[0]@7: ValueError: no"]),
        (
            [RecordHandled(*PLACE), CopyFailed("charge", "out", "it is away", 1)],
            ["  could not write to out: it is away"],
        ),
        (
            [RecordRetried(*PLACE, "E: 1", timedelta(1)), RecordParked(*PLACE, "E: 2", "e")],
            ["  retried orders[0]@7: E: 1"],
        ),
        ([RecordParked(*PLACE, "E: two\n\x1b[2Jlines", "e")], ["  parked orders[0]@7: E: two\\n\\x1b[2Jlines"]),
        ([RecordHandled(*PLACE)], []),
    ],
)
def test_a_batch_with_trouble_shows_the_first_of_it(events, expected):
    """One line below the batch's own, and none for a record that went well."""
    output = io.StringIO()
    with RunView("billing", output=output) as view:
        view.batch_done("orders", 1, tally(events=events))

    assert output.getvalue().splitlines()[1:] == expected


def test_records_that_waited_or_were_dropped_are_in_the_panel():
    """Their counts stand there, and only when there are any."""
    output = Terminal()
    with RunView("billing", output=output) as view:
        view._live.update(view._panel(), refresh=True)
        before = output.getvalue()
        view.batch_done("orders", 1, tally(deferred=1_234, dropped=5_678))
        view._live.update(view._panel(), refresh=True)

    assert "deferred" not in before
    assert [word for word in ("deferred", "1,234", "dropped", "5,678") if word not in output.getvalue()] == []


@pytest.mark.parametrize(
    ("paces", "ideal", "expected"),
    [([], None, ""), ([0.0], None, ""), ([0, 50, 100], 100.0, "▁▅█"), ([10, 20], None, "▅█"), ([300], 100.0, "█")],
)
def test_the_line_of_paces_is_as_high_as_the_ideal(paces, ideal, expected):
    """Full height is the ideal, or the best there was."""
    assert _spark_line(paces, ideal) == expected


@pytest.mark.parametrize(("shows_waits", "expected"), [(True, ["consuming (no answer)", "consuming"]), (False, [])])
def test_what_is_waited_for_in_the_middle_of_the_work(shows_waits, expected):
    """On Spark the tasks say it on stderr; elsewhere nothing else does."""
    output = io.StringIO()
    with RunView("billing", output=output, shows_waits=shows_waits) as view:
        for detail in ("", "no answer", ""):
            view.state_changed(State.CONSUMING, detail)

    assert output.getvalue().splitlines() == [f"billing: {line}" for line in ("consuming", *expected)]


def test_waits_that_take_turns_are_logged_once(monkeypatch):
    """A broker that is away is found by several parts, each in its own words, once a second."""
    output, now = io.StringIO(), [1000.0]
    monkeypatch.setattr("laneway.cli._view.time.monotonic", lambda: now[0])
    with RunView("billing", output=output, shows_waits=True) as view:
        for detail in ("", "no answer", "cannot write", "no answer", "cannot write", "", "no answer", ""):
            view.state_changed(State.CONSUMING, detail)
            now[0] += 1
        now[0] += 30
        view.state_changed(State.CONSUMING, "no answer")

    expected = ("consuming", "consuming (no answer)", "consuming (cannot write)", "consuming", "consuming (no answer)")
    assert output.getvalue().splitlines() == [f"billing: {line}" for line in expected]
