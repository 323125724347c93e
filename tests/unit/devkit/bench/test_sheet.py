"""The results file of the peers: interrupted, resumed, measured in part."""

from __future__ import annotations

import json

import pytest

from support.bench import sheet

FACTS = {"machine": {"cores": 2}, "versions": {"aiokafka": "1"}}


def result(workload, peer, rate):
    return {"workload": workload, "peer": peer, "records_per_second": rate}


def rates(path):
    return [
        (run["workload"], run["peer"], run["records_per_second"]) for run in json.loads(path.read_text())["results"]
    ]


@pytest.fixture(name="earlier")
def _earlier(tmp_path):
    found = sheet.Sheet(tmp_path, FACTS)
    for rate in (1, 2):
        found.add(result("w1", "quix", rate))
    found.add(result("w1", "aiokafka", 3))
    return found


def test_each_run_is_in_the_file_as_soon_as_it_is_over(tmp_path):
    """An interrupted bench keeps what was measured; before the first run there is no file."""
    found = sheet.Sheet(tmp_path, FACTS)
    assert not found.path.exists()
    found.add(result("w1", "quix", 1))
    assert rates(found.path) == [("w1", "quix", 1)]
    assert json.loads(found.path.read_text())["versions"] == FACTS["versions"]


def test_a_peer_that_is_measured_again_is_replaced_and_others_stay(tmp_path, earlier):
    """All its earlier runs go with its first new one; its second new one joins the first."""
    again = sheet.Sheet(tmp_path, FACTS)
    for rate in (8, 9):
        again.add(result("w1", "quix", rate))
    assert again.path == earlier.path
    assert rates(again.path) == [("w1", "quix", 8), ("w1", "quix", 9), ("w1", "aiokafka", 3)]


def test_a_resumed_bench_knows_what_it_has(tmp_path, earlier):
    """Runs that are there are not repeated, those that are not are added; without resuming none count."""
    resumed = sheet.Sheet(tmp_path, FACTS, is_resumed=True)
    assert [resumed.has("w1", "quix", runs) for runs in (1, 2, 3)] == [True, True, False]
    assert not resumed.has("w2", "quix", 1)
    resumed.add(result("w1", "quix", 7))
    assert [rate for *_, rate in rates(earlier.path)] == [1, 2, 7, 3]
    assert not sheet.Sheet(tmp_path, FACTS).has("w1", "quix", 1)


def test_a_bench_is_resumed_after_midnight(tmp_path, earlier):
    """It is the newest file that goes on, not a new one of the new day."""
    older = earlier.path.rename(tmp_path / "2020-01-01-peers.json")
    assert sheet.Sheet(tmp_path, FACTS, is_resumed=True).path == older
    assert sheet.Sheet(tmp_path, FACTS).path != older


def test_the_file_is_in_the_order_of_the_catalogue(tmp_path):
    """Laneway first, then the peers, whichever was measured last."""
    found = sheet.Sheet(tmp_path, FACTS)
    for workload, peer in (("w9", "quix"), ("w2", "quix"), ("w1", "gone"), ("w1", "quix"), ("w1", "laneway-direct")):
        found.add(result(workload, peer, 1))
    assert [run[:2] for run in rates(found.path)] == [
        ("w1", "laneway-direct"),
        ("w1", "quix"),
        ("w1", "gone"),
        ("w2", "quix"),
        ("w9", "quix"),
    ]


@pytest.mark.parametrize("name", ["machine", "versions"])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_figures_of_other_machines_or_versions_are_not_mixed(tmp_path, earlier, name, is_resumed):
    """It is refused, and the file stays as it was."""
    before = earlier.path.read_text()
    with pytest.raises(sheet.OtherFactsError, match=rf"another {name}.*Fix: "):
        sheet.Sheet(tmp_path, {**FACTS, name: {"new": 1}}, is_resumed=is_resumed)
    assert earlier.path.read_text() == before
