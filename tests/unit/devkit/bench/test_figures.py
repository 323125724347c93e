"""What a partial run replaces, and what it keeps."""

from __future__ import annotations

import json

import pytest

from support.bench import figures, run

HERE, THERE = {"cores": 2, "pyspark": "4.3.0"}, {"cores": 64, "pyspark": "4.3.0"}


def entry(command, rate, day, **more):
    return {"command": command, "records_per_second": rate, "measured": day, **more}


def rates(facts):
    return {found["command"]: (found["records_per_second"], found["measured"]) for found in facts["results"]}


def test_what_was_not_measured_keeps_its_figure_and_its_day():
    """Only the commands that ran are replaced."""
    before = {"machine": HERE, "results": [entry("a", 1, "monday"), entry("b", 2, "monday")]}
    after = figures.merged(before, [entry("b", 3, "tuesday")], HERE)
    assert rates(after) == {"a": (1, "monday"), "b": (3, "tuesday")}


def test_a_command_that_was_missing_comes_where_it_belongs():
    """The file is in the order of the bench, not in that of the measuring; a command it no longer has comes last."""
    before = {
        "machine": HERE,
        "results": [entry("gone", 9, "monday"), entry("c", 1, "monday"), entry("a", 1, "monday")],
    }
    after = figures.merged(before, [entry("b", 1, "tuesday")], HERE, ["a", "b", "c"])
    assert list(rates(after)) == ["a", "b", "c", "gone"]


def test_a_figure_keeps_the_machine_that_measured_it():
    """The file's facts are those of the newest figures; an older one from elsewhere says so itself, until replaced."""
    before = {"machine": HERE, "results": [entry("a", 1, "monday"), entry("b", 2, "monday")]}
    moved = figures.merged(before, [entry("b", 3, "tuesday")], THERE)
    assert moved["machine"] == THERE
    assert [found.get("machine") for found in moved["results"]] == [HERE, None]
    back = figures.merged(moved, [], HERE)
    assert [found.get("machine") for found in back["results"]] == [None, THERE]
    measured = figures.merged(moved, [entry("a", 4, "tuesday")], THERE)
    assert [found.get("machine") for found in measured["results"]] == [None, None]


def test_a_figure_without_a_time_has_the_day_of_its_file(tmp_path):
    """Results from before each figure kept its own time are not undated."""
    path = tmp_path / "2026-11-15-direct.json"
    path.write_text(json.dumps({"machine": HERE, "results": [{"command": "a", "records_per_second": 1}]}))
    assert rates(figures.read(path)) == {"a": (1, "2026-11-15")}


def test_the_newest_file_of_a_kind_is_found(tmp_path):
    """A kind is the whole end of a name; no file gives no figures."""
    for name in ("2026-11-15-direct", "2026-12-01-direct", "2027-01-01-indirect", "2027-01-01-not-direct"):
        (tmp_path / f"{name}.json").write_text("{}")
    assert figures.newest("direct", tmp_path) == tmp_path / "2026-12-01-direct.json"
    assert figures.newest("spark", tmp_path) is None
    assert figures.read(None) == {"results": []}


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path):
    """A failed write leaves the file that was there, and no draft that could be taken for one."""
    path = tmp_path / "2026-11-15-direct.json"
    figures.write(path, {"results": [1]})
    with pytest.raises(TypeError):
        figures.write(path, {"results": [object()]})
    assert json.loads(path.read_text()) == {"results": [1]}
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.fixture(name="folder")
def _folder(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "machine", lambda: HERE)
    kept = [
        entry("laneway bench w1 --engine direct", 1, "2026-11-15"),
        entry("laneway bench w3 --engine direct", 3, "x"),
    ]
    (tmp_path / "2026-11-15-direct.json").write_text(json.dumps({"machine": HERE, "results": kept}))
    return tmp_path


def test_a_run_of_one_workload_adds_to_the_newest_file(folder, monkeypatch):
    """Also on another day: the new file holds everything, so the README loses no row."""
    monkeypatch.setattr(run.time, "strftime", lambda _format: "2026-12-01")
    monkeypatch.setattr(run, "run", lambda arguments: {"records_per_second": 5, "measured": "now"})
    assert run.measure("direct", {"w5"}, folder) == []
    after = json.loads((folder / "2026-12-01-direct.json").read_text())
    assert rates(after) == {
        "laneway bench w1 --engine direct": (1, "2026-11-15"),
        "laneway bench w3 --engine direct": (3, "x"),
        "laneway bench w5 --engine direct": (5, "now"),
    }


def test_a_failed_workload_is_named_and_costs_no_other(folder, monkeypatch):
    """It keeps its older figure; those before and after it are kept as soon as they are there."""
    monkeypatch.setattr(
        run, "run", lambda arguments: None if "w3" in arguments else {"records_per_second": 7, "measured": "now"}
    )
    assert run.measure("direct", {"w3", "w4"}, folder) == ["laneway bench w3 --engine direct"]
    after = figures.read(figures.newest("direct", folder))
    assert rates(after)["laneway bench w3 --engine direct"] == (3, "x")
    assert rates(after)["laneway bench w4 --engine direct"] == (7, "now")


def test_of_several_runs_the_best_is_kept_and_what_must_not_happen_counts_from_all(folder, monkeypatch):
    """At a given rate the best is the one with the lowest latency; each run is listed with the machine's tempo."""
    monkeypatch.setattr(run.time, "strftime", lambda _format: "2026-11-15")
    runs = iter(
        [
            {"workload": "w5", "records_per_second": 5, "p99_ms": 1, "lost": 2, "tempo": [20, 20]},
            {"workload": "w5", "records_per_second": 9, "p99_ms": 7, "lost": 0, "tempo": [38, 37]},
        ]
    )
    monkeypatch.setattr(run, "run", lambda _arguments: next(runs) | {"measured": "now"})
    assert run.measure("direct", {"w5"}, folder, repeat=2) == []
    kept = json.loads((folder / "2026-11-15-direct.json").read_text())["results"][-1]
    assert (kept["records_per_second"], kept["lost"]) == (9, 2)
    assert [(found["records_per_second"], found["tempo"]) for found in kept["runs"]] == [(5, [20, 20]), (9, [38, 37])]

    slow, quick = ({"workload": "w4", "records_per_second": 2000 - p99, "p99_ms": p99} for p99 in (30, 12))
    assert run.best_of([slow, quick])["p99_ms"] == 12
