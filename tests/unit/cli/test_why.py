"""What `laneway why` says, from what Kafka and the processes of this machine tell."""

from __future__ import annotations

import json
import time

import pytest

from laneway import App, Retry, Topic
from laneway._core.finished_map import CLEAN, encode_finished
from laneway._declare.record import Record
from laneway.cli._why import _of_app, _print_json, _print_processes, as_of_now
from laneway.cli._why_group import Stand
from laneway.settings import load


def record(offset, key=b"42", seconds=120):
    return Record("orders", 3, offset, 1_000_000 - seconds * 1000, key, b"", (), 0, b"")


def words(stand, found=None):
    return stand.text(found, 1_000.0)


def test_a_hole_is_shown_with_what_is_finished_past_it():
    """One record is unfinished while thousands after it are done: the commit says so, and the record names its key."""
    metadata = encode_finished(1234, 1234 + 5001, [1234])
    stand = Stand("orders", 3, 0, 1234 + 5001, 1234, metadata)

    assert (stand.offset, stand.finished, stand.lag) == (1234, 5000, 1)
    assert words(stand, record(1234)) == (
        "partition 3 of orders: offset 1,234 (key 42, written 2m ago) is unfinished while 5,000 later ones are finished"
    )


def test_what_is_unfinished_past_a_hole_is_counted():
    """Lag is what is not finished, and not the distance to the end."""
    metadata = encode_finished(10, 20, [10, 11, 15])
    stand = Stand("orders", 3, 0, 25, 10, metadata)

    assert (stand.finished, stand.lag) == (7, 8)
    assert words(stand).endswith("offset 10 is unfinished while 7 later ones are finished, and 7 more are not")


@pytest.mark.parametrize("metadata", ["", CLEAN, "another app's"])
def test_a_plain_commit_tells_how_many_wait(metadata):
    """Nothing is said to be finished that the commit does not say."""
    assert words(Stand("orders", 3, 0, 30, 20, metadata), record(20)) == (
        "partition 3 of orders: offset 20 (key 42, written 2m ago) is not finished, and 9 more after it"
    )


def test_a_group_that_has_committed_nothing():
    """It begins where the log begins, which is not always 0."""
    stand = Stand("orders", 3, 5, 6)

    assert (stand.offset, stand.lag) == (5, 1)
    assert words(stand) == (
        "partition 3 of orders: offset 5 is not finished; the group has not committed an offset of it yet"
    )


@pytest.mark.parametrize(("committed", "lag"), [(9, 0), (12, 0), (3, 4)])
def test_lag_is_never_negative_and_never_counts_what_is_deleted(committed, lag):
    """A recreated topic ends before the commit, and retention deletes before it too."""
    assert Stand("orders", 0, 5, 9, committed).lag == lag


def test_an_app_is_looked_at_with_its_retry_and_error_topics():
    """Each retry topic with its delay."""
    app = App("billing")
    app.handler(Topic("orders"), retry=Retry.steps("5s", "1m", mode="unordered"))(lambda record: None)
    [subject] = _of_app(app, load(overrides={"brokers": "one:9092", "engine": "direct"}))

    assert (subject.group, subject.sources, subject.joins) == ("billing", ("orders",), True)
    assert subject.retries == {"orders.billing.retry.1": 5.0, "orders.billing.retry.2": 60.0}
    assert [topic.name for topic in subject.errors] == ["orders.billing.error"]


def said(**rest):
    return {
        "pid": 4711,
        "state": "consuming",
        "detail": "",
        "at": time.time(),
        "owned": {"orders": [0, 1]},
        "health": {
            "level": "WARNING",
            "reasons": [
                {"level": "WARNING", "code": "breaker-open", "text": "the breaker is open"},
                {"level": "WARNING", "code": "stalled", "text": "as below"},
            ],
        },
        "why": [{"sentence": "orders[0]@7 (key a\x1b[2J) has not moved for 40s: it waits"}],
        **rest,
    }


def test_a_process_of_this_machine_speaks_for_itself(capsys):
    """Level, state, reasons and sentences, each once, and nothing that a terminal would act on."""
    _print_processes([said()])

    assert capsys.readouterr().out.splitlines() == [
        "process 4711 of this machine: WARNING, consuming, 2 partitions",
        "  WARNING: the breaker is open",
        "  orders[0]@7 (key a\\x1b[2J) has not moved for 40s: it waits",
    ]


def test_a_process_that_has_fallen_silent_is_not_well(capsys):
    """What it said last may not be true any more; the JSON says the same as the text."""
    old = said(at=time.time() - 75, health={"level": "OK", "reasons": []}, why=[])
    _print_processes([as_of_now(old)])
    told = "no status for 1m15s: the process hangs or was suspended"

    assert capsys.readouterr().out.splitlines() == [
        "process 4711 of this machine: CRITICAL, consuming, 2 partitions",
        f"  CRITICAL: {told}",
    ]
    _print_json("billing", [as_of_now(old)], [])
    [process] = json.loads(capsys.readouterr().out)["processes"]
    [reason] = process["health"]["reasons"]
    assert (process["health"]["level"], reason["code"], reason["text"]) == ("CRITICAL", "silent", told)
    assert 75 <= process["silent_seconds"] < 80


def test_a_process_that_spoke_a_moment_ago_is_as_it_says():
    """Nothing is changed but the seconds since."""
    assert as_of_now(said(at=time.time() - 3))["health"] == said()["health"]


def test_a_long_list_is_cut(capsys):
    """A thousand partitions do not scroll the rest away."""
    _print_processes([said(why=[{"sentence": f"orders[{n}]@1 waits"} for n in range(100)])])
    lines = capsys.readouterr().out.splitlines()

    assert (len(lines), lines[-1]) == (22, "  and 81 more; --json shows all")


def test_json_is_one_document_of_plain_characters(capsys):
    """Also when Kafka did not answer."""
    _print_json("billing", [said()], [], "nobody there")
    text = capsys.readouterr().out

    assert text.isascii()
    assert json.loads(text)["error"] == "nobody there"
    assert json.loads(text)["processes"][0]["pid"] == 4711
