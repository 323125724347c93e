"""The tables of the peers: medians, failures, and what laneway costs beside a bare loop."""

from __future__ import annotations

import pytest

from support.bench import tables


def run(workload, peer, **more):
    return {
        "workload": workload,
        "peer": peer,
        "title": peer.capitalize(),
        "state": "finished",
        "why": "",
        "remark": "",
        "records": 1_000,
        "handled": 1_000,
        "records_per_second": 100.0,
        "lost": 0,
        "duplicates": 0,
        "inversions": 0,
        "overlaps": 0,
        "cpu_seconds": 1.0,
        "rss_mb": 50.0,
        "foreign_cores": 0.1,
        "measured": "2026-11-15 20:00",
        **more,
    }


def failed(workload, peer, why):
    return {"workload": workload, "peer": peer, "title": peer.capitalize(), "state": "failed", "why": why}


HUNG = {"state": "unfinished", "handled": 0, "records_per_second": None, "lost": None}


def test_a_line_is_the_median_of_its_runs():
    """One slow run does not count."""
    (line,) = tables.lines_of([run("w1", "quix", records_per_second=rate) for rate in (90.0, 100.0, 20.0)])
    assert (line.rate, line.runs, line.told, line.wrong) == (90.0, 3, "", "")


def test_a_run_that_failed_beside_others_is_shown_and_does_not_hide_them():
    """Two good runs keep their figure, with the failure and its reason beside it."""
    (line,) = tables.lines_of([run("w1", "quix"), failed("w1", "quix", "no order | given"), run("w1", "quix")])
    assert (line.rate, line.runs) == (100.0, 2)
    assert line.wrong == "1 of 3 runs failed: no order / given"
    assert not line.breaks_order


@pytest.mark.parametrize(
    ("result", "cell"),
    [
        (failed("w1", "quix", "RuntimeError: x"), "failed <sup>1</sup>"),
        (run("w1", "quix", **HUNG), "none <sup>1</sup>"),
        (run("w1", "quix", state="unfinished", lost=None), "100 <sup>1</sup>"),
        (run("w1", "quix", state="lost", lost=1_000), "100 <sup>1, 2</sup>"),
        (run("w1", "quix", overlaps=3), "100 <sup>1</sup>"),
        (run("w4", "quix"), "none"),
        (run("w4", "quix", p50_ms=1.5, p99_ms=20.0), "1.5 / 20.0"),
        (run("w1", "laneway-direct"), "**100**"),
    ],
)
def test_a_cell_tells_how_it_went(result, cell):
    """Who failed, hung, lost or broke the order has a footnote; a latency that is not known is no zero."""
    lines = tables.lines_of([result])
    assert tables.overview(lines)[2].split(" | ")[1].removesuffix(" |") == cell
    assert tables.page(lines, {"machine": MACHINE, "versions": {}, "results": [result]})


MACHINE = {"cores": 2, "memory_gib": 8.0, "system": "Linux", "python": "3.11.7", "confluent-kafka": "2.16.1"}


def test_a_peer_without_a_workload_has_an_empty_cell():
    """An interrupted bench has a table too."""
    table = tables.overview(tables.lines_of([run("w1", "quix"), run("w2", "aiokafka")]))
    assert table[2:4] == ["| Quix | 100 |  |", "| Aiokafka |  | 100 |"]


def test_overhead_is_the_time_of_a_record_beside_the_bare_loop():
    """Of medians, in W2 only."""
    results = [run("w2", "laneway-direct", records_per_second=rate) for rate in (250_000.0, 200_000.0, 90_000.0)]
    results += [run("w2", "confluent", records_per_second=400_000.0), run("w1", "confluent", records_per_second=1.0)]
    text = tables.overhead(tables.lines_of(results))
    assert "5.00 µs with Laneway's direct engine and 2.50 µs in a bare" in text
    assert text.endswith("2.00 times as long.")


@pytest.mark.parametrize("other", [None, failed("w2", "confluent", "x"), run("w2", "confluent", **HUNG)])
def test_without_a_finished_loop_there_is_no_overhead(other):
    """Nothing is divided by what is not there."""
    assert tables.overhead(tables.lines_of([run("w2", "laneway-direct"), *([other] if other else [])])) == ""


def test_last_words_fit_a_cell():
    """No bar, tag or line break of a failed program gets into the table, and not more than it can bear."""
    (line,) = tables.lines_of([failed("w1", "quix", "<b>|\n" + "x" * 500)])
    assert not set(line.why) & set("<>|\n")
    assert len(line.why) < 130
