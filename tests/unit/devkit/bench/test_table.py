"""The figures of docs/performance.md and the README, from incomplete results."""

from __future__ import annotations

import json

import pytest

from support.bench import figures, table

MACHINE = {"cores": 2, "memory_gib": 8.0, "python": "3.11.7", "pyspark": "4.3.0", "confluent-kafka": "2.16.1"}
NONE = {"lost": 0, "duplicates": 0, "inversions": 0, "overlaps": 0}


def entry(words, **more):
    return {
        "command": f"laneway bench {words}",
        "measured": "2026-11-15 20:00",
        "records": 1_000,
        "records_per_second": 1234.5,
        "ratio": 0.5,
        "p50_ms": 8,
        "p99_ms": 9,
        "cpu_seconds": 0.025,
        "rss_mb": 103.2,
        **NONE,
        **more,
    }


def facts(*entries, machine=None):
    return {"machine": machine or MACHINE, "results": list(entries)}


def row(text, command):
    (line,) = [line for line in text.splitlines() if f"| `{command}` |" in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_workload_that_was_not_measured_leaves_its_cell_empty():
    """One engine's figure stands alone, and so does a row without any."""
    text = table.workloads({"spark": facts(), "direct": facts(entry("w1 --engine direct"))})
    assert row(text, "w1")[2:4] == ["", "**1,234**"]
    assert row(text, "w3")[2:4] == ["", ""]
    assert "connector" not in text


@pytest.mark.parametrize("missing", ["w1", "w4", "w5"])
def test_a_sentence_without_its_figure_is_left_out(missing):
    """The others stay."""
    told = {"w1": "µs of CPU", "w4": "At 2,000 records/s", "w5": "skewed keys"}
    measured = [entry(f"{name} --engine direct") for name in told if name != missing]
    text = table.workloads({"spark": {"results": []}, "direct": facts(*measured)})
    assert {name: words in text for name, words in told.items()} == {name: name != missing for name in told}


def test_the_headline_has_three_figures_of_both_engines():
    """Two rates and a latency; a figure that is missing leaves its cell empty, two leave their row out."""
    spark, direct = facts(entry("w1"), entry("w4", p50_ms=104)), facts(entry("w4 --engine direct"))
    about, figures_table = table.headline({"spark": spark, "direct": direct}).split("\n\n")
    assert about.startswith("2 cores")
    rows = figures_table.splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")][1:] for row in rows]
    assert cells == [["**1,234**", ""], ["**104 / 9 ms**", "**8 / 9 ms**"]]


def test_sentences_take_their_figures_from_the_results():
    """CPU is for each record, the ratio in per cent, and each latency is with its engine."""
    spark, direct = facts(entry("w4", p50_ms=104)), [entry(f"{name} --engine direct") for name in ("w1", "w4", "w5")]
    text = " ".join(table.workloads({"spark": spark, "direct": facts(*direct)}).split())
    assert "p50 104 ms and p99 9 ms on Spark, p50 8 ms and p99 9 ms with the direct engine." in text
    assert "reaches 50.0% of what the hottest key allows" in text
    assert "25 µs of CPU, in one process of 103 MB" in text


def test_what_the_checks_found_is_shown():
    """No text says that nothing was lost when something was."""
    clean, bad = entry("w1 --engine direct"), entry("w3 --engine direct", lost=3, overlaps=1)
    assert "nothing lost" in table.checked([clean])
    assert table.checked([clean, bad]).endswith("`laneway bench w3 --engine direct`: 3 lost, 1 overlaps.")


def test_figures_of_another_machine_or_day_are_marked():
    """Two machines are both named, and so is a figure that was measured elsewhere."""
    other = {**MACHINE, "cores": 64}
    kept = entry("w3 --engine direct", machine=other, measured="2026-11-12 08:00")
    text = table.workloads(
        {"spark": facts(entry("w1"), machine=other), "direct": facts(entry("w1 --engine direct"), kept)}
    )
    text = " ".join(text.split())
    assert "on Spark: 64 cores" in text
    assert "with the direct engine: 2 cores" in text
    assert "`laneway bench w3 --engine direct` on another machine" in text
    assert "measured from 2026-11-12 to 2026-11-15" in text


def test_of_several_runs_the_table_says_that_it_shows_the_best():
    """With how low the others were; one run alone needs no words."""
    runs = [{"records_per_second": rate} for rate in (206_000, 256_000, 143_000)]
    entries = {"w3": {"records_per_second": 256_000, "runs": runs}, "w2": {"records_per_second": 9}}
    assert table.cell(entries, "w3") == "**256,000** (best of 3, lowest 143,000)"
    assert table.cell(entries, "w2") == "**9**"
    assert table.cell(entries, "w1") == ""


def test_the_median_of_what_failures_cost_stands_beside_the_best():
    """A best pass alone would flatter."""
    entry = {"handler": "sync", "policy": "unordered", "failing_percent": 1}
    results = [entry | {"part_of_first": 0.842, "part_of_first_median": 0.789}]
    assert table.part(results, "sync", "unordered") == "84 % (median 79 %)"


def test_what_failures_cost_is_a_range_of_all_runs():
    """Of one record in a hundred, by handler and policy; a handler without runs has no row."""
    runs = [("async", "in-place", 0.987), ("async", "unordered", 0.958), ("async", "unordered", 0.7)]
    results = [
        {"handler": handler, "policy": policy, "failing_percent": share, "part_of_first": part}
        for handler, policy, part in runs
        for share, part in ((0, 1.0), (1, part))
    ]
    rows = table.cost_of_failures(results).splitlines()[2:]
    assert rows == ["| waits 5 ms | 99 % | 70 to 96 % |"]
    assert table.cost_of_failures([]) == ""


def test_a_part_goes_between_its_markers_and_nothing_else_changes():
    """Empty or filled before, once or twice: the same text comes out."""
    text = "a\n<!-- x -->\n<!-- end of x -->\nb\n<!-- y -->\nold\n<!-- end of y -->\nc\n"
    once = table.between(text, "x", "new \\1\n")
    assert once == "a\n<!-- x -->\nnew \\1\n<!-- end of x -->\nb\n<!-- y -->\nold\n<!-- end of y -->\nc\n"
    assert table.between(once, "x", "new \\1") == once
    assert table.between(text, "y", "new").endswith("b\n<!-- y -->\nnew\n<!-- end of y -->\nc\n")


@pytest.mark.parametrize("text", ["", "<!-- x -->\n", "<!-- x -->\n<!-- end of x -->\n" * 2])
def test_a_marker_that_is_missing_or_there_twice_is_an_error(text):
    """A table that lands nowhere, or in two places, is noticed."""
    with pytest.raises(ValueError, match="<!-- x -->"):
        table.between(text, "x", "new")


def test_parts_without_results_are_left_as_they_are(tmp_path):
    """No results, no parts; with peers alone, only theirs, and no chart when none was drawn."""
    assert table.parts(tmp_path) == {}
    run = {
        "workload": "w2",
        "peer": "quix",
        "title": "Quix Streams",
        "state": "failed",
        "why": "x",
        "measured": "2026-11-15",
    }
    peers = {"machine": {**MACHINE, "system": "Linux"}, "versions": {"quixstreams": "3"}, "results": [run]}
    (tmp_path / "2026-11-15-peers.json").write_text(json.dumps(peers))
    text = table.compared(figures.read(tmp_path / "2026-11-15-peers.json"), "")
    assert "| Quix Streams | failed <sup>1</sup> |" in text
    assert "![" not in text
    with_chart = table.compared(peers, "../bench/results/peers.svg")
    assert "](../bench/results/peers.svg)](../bench/results/peers.md)" in with_chart


def test_the_pages_have_a_place_for_each_part_and_hold_the_newest_figures():
    """`python bench/table.py` was run after the last bench. Fix: run it."""
    found = {engine: figures.read(figures.newest(engine)) for engine in table.NAMES}
    readme, page = table.README.read_text(), table.PAGE.read_text()
    assert table.between(readme, "headline", table.headline(found)) == readme
    assert table.between(page, "figures", table.workloads(found)) == page
    failures = figures.read(figures.newest("failure"))["results"]
    assert table.between(page, "failures", table.cost_of_failures(failures)) == page
    peers = figures.read(figures.newest("peers"))
    if peers["results"]:
        assert table.between(page, "peers", table.compared(peers, "../bench/results/peers.svg")) == page
    assert "<!-- peers -->" in page
