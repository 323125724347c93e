"""The judge of the soak: every planted violation is found, and what cannot be prevented is counted apart."""

from __future__ import annotations

import importlib
import json
import math
from collections import Counter
from types import SimpleNamespace

import pytest

from laneway.devkit.history._recorder import _LINE
from support.ownership import LoggedCommit

importlib.import_module("support.bench")  # from here on the modules of bench are found
judge = importlib.import_module("soak.judge")
BAR = judge.Bar(seconds=0.0096, fault_every=0.0096, duplicates=5)
"""Four records and one fault."""


def _line(kind, time, offset=-1, partition=0):
    return {"kind": kind, "time": time, "topic": "soak", "places": [(partition, offset)]}


class Soak:
    """What two workers leave behind that share a partition of four records, one of which is parked: all in order."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.calls = {"a": [(0, 1.0, 2.0), (1, 2.0, 3.0)], "b": [(3, 6.0, 7.0)]}
        self.failed = {"a": [(2, 2.0, 2.5)]}
        self.told = {
            "a": [("assigned", 0.5), ("committed", 4.0, 3), ("revoked", 4.5)],
            "b": [("assigned", 5.0), ("committed", 8.0, 4)],
        }
        self.logged = [LoggedCommit(0, 3, 3.9), LoggedCommit(0, 4, 7.9)]
        self.copies = [(2, 2_600)]
        self.keys = {0: 7, 1: 7, 2: 9, 3: 7}
        """Offset to its key; 0 is none."""
        self.acknowledged = {0: 4}
        self.frozen, self.surprises, self.exits, self.refused, self.failures = [], [], [], [], []
        monkeypatch.setattr(judge, "logged_commits", lambda stage, clock, path: self.logged)
        monkeypatch.setattr(judge, "everything", lambda stage, topic: self._copies())

    def _copies(self):
        for offset, made in self.copies:
            place = {"laneway-origin-partition": b"0", "laneway-origin-offset": b"%d" % offset}
            yield b"key", b"value", 0, {**place, "laneway-parked-at": b"%d" % made}

    def _write(self):
        for name in {*self.calls, *self.told}:
            (self.folder / name / "failed").mkdir(parents=True)
            for part, calls in (("", self.calls), ("failed", self.failed)):
                rows = [
                    _LINE.pack(self.keys[offset], 0, offset, begin, end, 1)
                    for offset, begin, end in calls.get(name, [])
                ]
                (self.folder / name / part / "1.history").write_bytes(b"".join(rows))
            lines = [_line(*words) for words in self.told.get(name, [])]
            (self.folder / name / "1.ownership").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def figures(self):
        """The judgement."""
        self._write()
        return judge.judge(
            judge.Findings(
                SimpleNamespace(
                    topic="soak",
                    group="soak-app",
                    ends=lambda: {0: 4},
                    admin=SimpleNamespace(partitions=lambda topic: [0]),
                ),
                SimpleNamespace(acknowledged=self.acknowledged, failed=self.refused),
                SimpleNamespace(workers=["a", "b"], surprises=self.surprises, exits=self.exits),
                SimpleNamespace(
                    frozen=self.frozen, failures=self.failures, total=1, counts=Counter({"freeze-worker": 1})
                ),
                SimpleNamespace(doubt=0.01, moment=lambda milliseconds: milliseconds / 1000),
                self.folder,
            )
        )

    def missed(self):
        """The names of what falls short."""
        return {text.split(":")[0] for text in BAR.missed(self.figures())}


@pytest.fixture(name="soak")
def _soak(tmp_path, monkeypatch):
    return Soak(tmp_path, monkeypatch)


def test_a_soak_in_order_meets_the_bar(soak):
    """With its figures: a partition that is handed over, a record that fails and is parked, commits behind both."""
    figures = soak.figures()

    assert BAR.missed(figures) == []
    assert figures["examples"] == []
    expected = {"records": 4, "calls": 4, "failed_calls": 1, "parked": 1, "commits_logged": 2, "assignments": 2}
    assert {name: figures[name] for name in expected} == expected


def lost(soak):
    """A record without a call."""
    soak.calls["b"].clear()


def duplicate(soak):
    """A record that is called again by the next owner."""
    soak.calls["b"].insert(0, (1, 5.2, 5.4))


def parked_twice(soak):
    """A second copy of a record; it was safe with the first."""
    soak.copies.append((2, 6_000))


def inversion(soak):
    """Two records of a key in the wrong order."""
    soak.calls["a"] = [(1, 1.0, 2.0), (0, 2.0, 3.0)]


def overlap(soak):
    """Two calls of a key at once."""
    soak.calls["a"] = [(0, 1.0, 2.1), (1, 2.0, 3.0)]


def commit_ahead(soak):
    """A commit past a call that still runs."""
    soak.told["a"].insert(1, ("committed", 2.9, 2))
    soak.logged.insert(0, LoggedCommit(0, 2, 2.8))


def commit_ahead_in_the_log(soak):
    """One that the worker did not report."""
    soak.logged.insert(0, LoggedCommit(0, 2, 2.8))


def commit_ahead_of_a_copy(soak):
    """A commit past a record that has failed and of which no copy was made yet."""
    soak.copies = [(2, 4_100)]


def commit_after_revoke(soak):
    """A commit of a worker that has given the partition back."""
    soak.told["a"].append(("committed", 5.5, 3))
    soak.logged.insert(1, LoggedCommit(0, 3, 5.4))


def commit_backwards(soak):
    """A commit below an earlier one of the same owner."""
    soak.logged.insert(1, LoggedCommit(0, 2, 3.95))


def commit_unwritten(soak):
    """A commit that the broker never had."""
    soak.told["b"].insert(1, ("committed", 6.5, 3))
    del soak.logged[0]
    soak.told["a"] = [("assigned", 0.5), ("revoked", 4.5)]


def stray(soak):
    """A call of a worker that has given the partition back and lives on."""
    soak.calls["b"].clear()
    soak.calls["a"].append((3, 4.8, 4.9))
    soak.told["a"].append(("assigned", 20.0))


def handed_over(soak):
    """A call that goes on when its partition has been given back, while the next owner is at work on the key."""
    soak.calls["a"][1] = (1, 2.0, 6.5)
    soak.told["a"][1] = ("committed", 4.0, 1)
    soak.logged[0] = LoggedCommit(0, 1, 3.9)


def silent(soak):
    """A worker that calls and says nothing of its partitions."""
    soak.told["a"].clear()


def lag(soak):
    """Records that are finished and not committed."""
    soak.told["b"].pop()
    soak.logged.pop()


def unacknowledged(soak):
    """A record that the brokers have and the producer got no answer about."""
    soak.acknowledged = {0: 3}


def surprise(soak):
    """A worker that ends by itself."""
    soak.surprises.append("worker-001 ended with exit code 1")


def hung(soak):
    """A worker that had to be killed when it was asked to leave."""
    soak.exits.append(("worker-001", None, 60.0))


def refused(soak):
    """A record that could not be produced."""
    soak.refused.append("timed out")


def unhealed(soak):
    """A fault that could not be made or healed."""
    soak.failures.append("kill-broker node-1: timed out")


@pytest.mark.parametrize(
    ("plant", "missed"),
    [
        (lost, {"lost", "commit_ahead"}),
        (duplicate, {"duplicate_percent"}),
        (parked_twice, {"duplicate_percent"}),
        (inversion, {"inversions"}),
        (overlap, {"overlaps_within"}),
        (commit_ahead, {"commit_ahead"}),
        (commit_ahead_in_the_log, {"commit_ahead"}),
        (commit_ahead_of_a_copy, {"commit_ahead"}),
        (commit_after_revoke, {"commit_after_revoke"}),
        (commit_backwards, {"commit_backwards"}),
        (commit_unwritten, {"commit_unwritten"}),
        (stray, {"strays"}),
        (handed_over, {"overlaps_handed_over"}),
        (silent, {"untold"}),
        (lag, {"lag_at_end"}),
        (unacknowledged, {"unacknowledged"}),
        (surprise, {"surprises"}),
        (hung, {"hung"}),
        (refused, {"produce_failures"}),
        (unhealed, {"fault_failures"}),
    ],
)
def test_a_planted_violation_misses_the_bar(soak, plant, missed):
    """Each by its own name, and nothing else."""
    plant(soak)

    assert soak.missed() == missed


def test_the_time_of_a_copy_may_be_off_by_the_doubt(soak):
    """It is a worker's, and the commit's is a broker's: a few milliseconds are no violation."""
    soak.copies = [(2, 3_905)]

    assert soak.missed() == set()


def test_times_of_workers_and_brokers_become_those_of_the_histories(monkeypatch):
    """By the distance of the two clocks; when it changes, the doubt grows by as much."""
    offsets, now = importlib.import_module("soak.offsets"), [5_000.25]
    monkeypatch.setattr(offsets, "time", SimpleNamespace(time=lambda: now[0], monotonic=lambda: 100.0))
    clock = offsets.Clock()
    assert clock.moment(5_000_750) == pytest.approx(100.5)
    assert clock.doubt == pytest.approx(0.002)
    now[0] += 0.5
    clock.look()

    assert clock.moment(5_000_750) == pytest.approx(100.25)
    assert clock.doubt == pytest.approx(0.502)


# --- the bar ---------------------------------------------------------------------------------------------------------


def test_the_bar_grows_with_the_time():
    """500,000 records and 80 faults in twenty minutes."""
    whole, part = judge.Bar(1200, 15, 5), judge.Bar(180, 10, 5)

    assert (whole.records, whole.faults, part.records, part.faults) == (500_000, 80, 75_000, 18)


def test_too_little_and_too_much_are_reported_with_their_numbers():
    """What there must be enough of, what there must be nothing of, and repeats up to a share."""
    bar = judge.Bar(1200, 15, 5)
    figures = {**dict.fromkeys(judge._NONE, 0), "records": 500_000, "faults": 80, "duplicate_percent": 4.99}
    assert bar.missed(figures) == []

    figures |= {"records": 499_999, "faults": 79, "duplicate_percent": 5.0, "lost": 3}
    assert bar.missed(figures) == [
        "records: 499999 of 500000",
        "faults: 79 of 80",
        "lost: 3",
        "duplicate_percent: 5.0",
    ]


# --- overlaps between processes --------------------------------------------------------------------------------------


def overlapping(soak, **frozen):
    """The figures of a call of a that lasts from 2.0 to 6.5, and one of b from 6.0 on: a has lost the partition."""
    handed_over(soak)
    soak.told["a"][-1] = ("lost", 6.2)
    soak.frozen = [(name, *times) for name, times in frozen.items()]
    figures = soak.figures()
    return {name.removeprefix("overlaps_"): figures[name] for name in figures if name.startswith("overlaps_")}


NOTHING = {"within": 0, "handed_over": 0, "between_frozen": 0, "between_others": 0}


def test_a_worker_that_was_cut_off_in_a_call_is_counted_apart(soak):
    """It could not know; so it is counted, and not held against it."""
    assert overlapping(soak) == {**NOTHING, "between_others": 1}


@pytest.mark.parametrize(
    ("name", "time", "partition"), [("b", 6.2, 0), ("c", 5.0, 0), ("a", 1.5, 0), ("a", 6.6, 0), ("a", 5.0, 1)]
)
def test_what_is_given_back_elsewhere_or_at_another_time_says_nothing(soak, name, time, partition):
    """Only a call that goes on after its own worker has given the partition back was handed over too soon."""
    soak.told.setdefault(name, []).insert(0, ("revoked", time, -1, partition))
    soak.calls["b"] = [(3, 6.3, 7.0)]

    assert overlapping(soak) == {**NOTHING, "between_others": 1}


def test_calls_of_one_worker_are_its_own_overlap(soak):
    """It is counted once, and the worker could have known."""
    overlap(soak)
    figures = soak.figures()

    assert (figures["overlaps_within"], figures["overlaps_between_others"]) == (1, 0)


@pytest.mark.parametrize("times", [(3.0, 6.4), (3.0, math.inf), (1.0, 2.1), (0.1, 1.5)])
def test_a_worker_that_was_frozen_in_a_call_or_just_before_is_innocent(soak, times):
    """It may begin a call before it hears that time has passed."""
    assert overlapping(soak, a=times) == {**NOTHING, "between_frozen": 1}


@pytest.mark.parametrize("frozen", [{"a": (6.6, 9.0)}, {"a": (0.1, 0.9)}, {"b": (6.1, 6.3)}, {"c": (3.0, 6.4)}])
def test_it_is_no_excuse_to_have_been_frozen_at_another_time(soak, frozen):
    """Nor that another was, nor that the next owner was once it had begun."""
    assert overlapping(soak, **frozen) == {**NOTHING, "between_others": 1}


def test_a_worker_that_wakes_up_and_calls_what_is_anothers_is_innocent(soak):
    """The news reaches it a moment later."""
    assert overlapping(soak, b=(1.0, 5.9)) == {**NOTHING, "between_frozen": 1}


def test_calls_that_failed_overlap_too(soak):
    """A call that raised was still a call."""
    handed_over(soak)
    soak.failed["b"], soak.calls["b"] = soak.calls["b"], []

    assert soak.figures()["overlaps_handed_over"] == 1


def test_every_pair_is_counted(soak):
    """A long call of one worker does not hide that two others overlap under it."""
    soak.calls = {"a": [(0, 1.0, 9.0)], "b": [(1, 2.0, 5.0)], "c": [(3, 3.0, 4.0), (3, 5.0, 6.0)]}
    soak.told["a"].pop()

    assert soak.figures()["overlaps_between_others"] == 4


def test_records_without_a_key_do_not_overlap(soak):
    """They have no order."""
    soak.keys = dict.fromkeys(range(4), 0)

    assert overlapping(soak) == NOTHING


def test_only_a_few_overlaps_are_described(soak):
    """All of them are counted."""
    soak.calls = {"a": [(0, 1.0, 9.0)], "b": [(1, 2.0 + step / 10, 2.05 + step / 10) for step in range(20)]}
    soak.told["a"].pop()
    figures = soak.figures()

    assert figures["overlaps_between_others"] == 20
    told = [text for text in figures["examples"] if text.startswith("overlap, others: ")]
    assert (len(told), told[0]) == (5, "overlap, others: a 0@0 1.000-9.000 and b 0@1 2.000-2.050")
