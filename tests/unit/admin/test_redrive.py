"""Whatever fails and whenever it ends: no parked record is lost, and without trouble none comes twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from laneway.admin import Drop, Filter, Position, Redrive, Replay, Watcher, plan_redrive
from laneway.admin import _redrive as _carrier
from laneway.errors import AdminError, MessageTooLargeError, ProduceError
from support.core import FakeClock
from support.parked import ERROR_TOPIC, FakeLog, FakeProducer, FakeTopics

CHOSEN = Filter(error_type="A")


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    monkeypatch.setattr(_carrier, "_WINDOW", 3)


class FakeWatcher(Watcher):
    """Requests a stop when it was asked *most* times, and moves a clock at each start."""

    def __init__(self, most=10**6, clock=None):
        self.most, self.clock = most, clock
        self.checks = self.starts = 0

    @property
    def is_stopping(self):
        self.checks += 1
        return self.checks > self.most

    def started(self):
        self.starts += 1
        if self.clock is not None:
            self.clock.advance(1.5)


def topics_of(*partitions, committed=()):
    """An error topic; a record whose letter is A is chosen."""
    topics = FakeTopics(committed=dict(committed))
    for partition, letters in enumerate(partitions):
        topics.logs[ERROR_TOPIC.name, partition] = []
        for number, letter in enumerate(letters):
            headers = (("own", None), ("laneway-error-type", letter.encode()), ("own", b"\xff"))
            name = f"{partition}:{number}".encode()
            topics.append(ERROR_TOPIC.name, partition, key=name, value=None, headers=headers, timestamp=number + 1)
    return topics


def carry(topics, deed=None, *, log=None, fate=lambda topic: None, limit=None, carrier=Redrive, **options):
    log = log or FakeLog(topics)
    deed = deed or Replay(ERROR_TOPIC, CHOSEN, {"orders": 2})
    plan = plan_redrive(log, log.extents(), deed.choose, limit)
    return carrier(log, deed, FakeProducer(topics, fate), **options).run(plan)


def names(messages):
    return Counter(message["key"].decode() for message in messages)


def test_a_middle_record_is_replayed_and_the_others_stay_open_once():
    """Those before it move to the end of their partition, those behind it stay where they are."""
    topics = topics_of("xxAx", "x")
    result = carry(topics)

    assert (result.done, result.kept, result.trouble) == (1, 2, None)
    assert [message["key"] for message in topics.on("orders")] == [b"0:2"]
    assert [message["key"] for message in topics.open()] == [b"0:3", b"0:0", b"0:1", b"1:0"]
    assert topics.committed == {0: 3}


def test_what_is_kept_is_the_same_to_the_last_byte():
    """Null values, repeated and binary headers, and the timestamp."""
    topics = topics_of("xA")
    before = dict(topics.open()[0])
    carry(topics)

    assert topics.open() == [before]


def test_a_replayed_record_is_as_it_was():
    """Its own headers and timestamp; of ours only how often it was parked."""
    topics = topics_of("A")
    carry(topics)

    headers = (("own", None), ("own", b"\xff"), ("laneway-errors", b"1"))
    assert topics.on("orders") == [{"key": b"0:0", "value": None, "headers": headers, "timestamp": 1}]


def test_a_drop_sends_nothing():
    """Only the group's offset moves, and the others are kept."""
    topics = topics_of("AxA")
    result = carry(topics, Drop(CHOSEN))

    assert (result.done, result.kept) == (2, 1)
    assert (topics.on("orders"), names(topics.open())) == ([], {"0:1": 1})


def test_a_limit_leaves_the_rest_open():
    """Chosen records behind the limit are not touched."""
    topics = topics_of("xAxA")
    result = carry(topics, limit=1)

    assert (result.done, names(topics.on("orders"))) == (1, {"0:1": 1})
    assert names(topics.open()) == {"0:0": 1, "0:2": 1, "0:3": 1}


def test_a_commit_comes_only_after_the_copies_are_acknowledged():
    """At each commit everything before the offset is replayed or open."""
    topics = topics_of("xAxAxAxA")
    log = FakeLog(topics)
    seen = []
    log.on_commit = lambda: seen.append((len(topics.on("orders")), len(topics.logs[ERROR_TOPIC.name, 0])))
    carry(topics, log=log)

    assert seen == [(1, 10), (3, 11), (4, 12)]


def test_a_crash_between_copies_and_commit_loses_nothing():
    """Everything is open still, what was kept twice; another run sets it right."""
    topics = topics_of("xAx")

    def crash():
        raise AdminError("the brokers are gone")

    result = carry(topics, log=FakeLog(topics, crash))
    assert (result.done, result.repeatable, result.trouble) == (0, 1, "the brokers are gone")
    assert names(topics.open()) == {"0:0": 2, "0:1": 1, "0:2": 1}

    assert carry(topics).done == 1
    assert names(topics.open()) == {"0:0": 2, "0:2": 1}


def test_a_stop_accounts_for_what_is_done():
    """What was acknowledged is committed, the rest is open, each once."""
    topics = topics_of("xAAAxAA")
    clock = FakeClock()
    result = carry(topics, watcher=FakeWatcher(6), clock=clock)

    assert result.was_stopped
    assert 0 < result.done < 5
    assert sorted(names(topics.on("orders") + topics.open()).items()) == [(f"0:{n}", 1) for n in range(7)]
    assert len(topics.on("orders")) == result.done


def test_a_record_too_large_for_its_topic_stays_open():
    """It is counted and named, and the others go on."""
    topics = topics_of("AAAA")
    answers = iter([None, MessageTooLargeError("too large"), None, MessageTooLargeError("too large"), None])
    result = carry(topics, fate=lambda topic: next(answers, None))

    assert (result.done, result.trouble) == (3, None)
    assert result.refused["too large"].places == [Position(0, 1)]
    assert names(topics.open()) == {"0:1": 1}


def test_a_small_record_is_not_judged_by_its_neighbour():
    """Brokers refuse a whole request for one message in it; each is tried alone before it counts as too large."""
    topics = topics_of("AxA")
    answers = iter([MessageTooLargeError("together")] * 3)
    result = carry(topics, fate=lambda topic: next(answers, None))

    assert (result.done, result.kept, result.refused) == (2, 1, {})
    assert names(topics.open()) == {"0:1": 1}


def test_another_refusal_ends_it_with_everything_in_its_place():
    """What meets one record would meet all, so no more are tried; the refused one stays open."""
    topics = topics_of("AAAAAA")
    result = carry(topics, fate=lambda topic: ProduceError("no permission") if topic == "orders" else None)

    assert (result.done, result.trouble) == (0, "0:0 was refused: no permission")
    assert names(topics.open()) == {f"0:{number}": 1 for number in range(6)}


def test_an_error_topic_that_takes_nothing_is_not_committed_past():
    """What could not be kept is open where it was."""
    topics = topics_of("AxA")
    result = carry(topics, fate=lambda topic: ProduceError("full") if topic == ERROR_TOPIC.name else None)

    assert (result.done, result.repeatable, topics.committed) == (1, 1, {0: 1})
    assert result.trouble == f"cannot append 0:1 to {ERROR_TOPIC.name} again: full"


def test_an_offset_that_moved_before_the_start_is_noticed():
    """Nothing is sent."""
    topics = topics_of("AA", committed=[(0, 0)])
    log = FakeLog(topics)
    deed = Replay(ERROR_TOPIC, CHOSEN, {})
    plan = plan_redrive(log, log.extents(), deed.choose)
    topics.committed[0] = 1
    result = Redrive(log, deed, FakeProducer(topics)).run(plan)

    assert "another process moved the offset of group billing.errors" in result.trouble
    assert "expected 0, found 1" in result.trouble
    assert topics.on("orders") == []


def test_an_offset_that_moves_meanwhile_is_not_overwritten():
    """The other one's offset stays, and no more is done."""
    topics = topics_of("A" * 9)
    log = FakeLog(topics)

    def meddle(topic):
        if len(topics.on("orders")) == 4:
            topics.committed[0] = 8

    result = carry(topics, log=log, fate=meddle)

    assert "expected 3, found 8" in result.trouble
    assert (topics.committed, result.done, result.repeatable) == ({0: 8}, 3, 3)


def test_a_watcher_sees_each_chosen_record():
    """Those that are kept do not count."""
    watcher = FakeWatcher()
    carry(topics_of("xAxAA"), watcher=watcher)
    assert watcher.starts == 3


def test_a_window_is_bounded_by_time_and_size(monkeypatch):
    """A slow replay commits every two seconds, one of large records every sixteen mebibytes."""
    commits = []
    topics = topics_of("AAAA")
    clock = FakeClock()
    monkeypatch.setattr(_carrier, "_WINDOW", 100)
    log = FakeLog(topics, lambda: commits.append(clock.now))
    carry(topics, log=log, clock=clock, watcher=FakeWatcher(clock=clock))
    assert len(commits) == 2

    commits.clear()
    monkeypatch.setattr(_carrier, "_WINDOW_SIZE", 10)
    topics = topics_of("AAAA")
    carry(topics, log=FakeLog(topics, lambda: commits.append(0)))
    assert len(commits) == 4


@dataclass
class Story:
    """What happens during one run: which messages and commits fail, and when a stop is asked for."""

    letters: list[str]
    failures: dict[int, str]
    commits: set[int]
    stop: int | None
    limit: int | None
    is_drop: bool

    @property
    def is_calm(self):
        return not self.failures and not self.commits


STORIES = st.builds(
    Story,
    letters=st.lists(st.text("Ax", max_size=10), min_size=1, max_size=3),
    failures=st.dictionaries(st.integers(0, 20), st.sampled_from(["large", "other"]), max_size=3),
    commits=st.sets(st.integers(0, 6), max_size=2),
    stop=st.one_of(st.none(), st.integers(0, 20)),
    limit=st.one_of(st.none(), st.integers(1, 6)),
    is_drop=st.booleans(),
)


def check(story, carrier=Redrive):
    """Run a story and judge what is left, then run it again in peace."""
    topics = topics_of(*story.letters)
    everything = {f"{p}:{n}": letter for p, letters in enumerate(story.letters) for n, letter in enumerate(letters)}
    sent, committed = iter(range(10**6)), iter(range(10**6))

    def fate(_topic):
        kind = story.failures.get(next(sent))
        return {None: None, "large": MessageTooLargeError("large"), "other": ProduceError("other")}[kind]

    def on_commit():
        if next(committed) in story.commits:
            raise AdminError("crash")

    deed = Drop(CHOSEN) if story.is_drop else Replay(ERROR_TOPIC, CHOSEN, {"orders": 2})
    result = carry(
        topics,
        deed,
        log=FakeLog(topics, on_commit),
        fate=fate,
        limit=story.limit,
        carrier=carrier,
        watcher=FakeWatcher(10**6 if story.stop is None else story.stop),
    )
    replayed, still_open = names(topics.on("orders")), names(topics.open())
    for name, letter in everything.items():
        if letter == "x":
            assert name not in replayed, f"{name} was replayed but not chosen"
            assert still_open[name] >= 1, f"{name} is lost"
            assert not story.is_calm or still_open[name] == 1, f"{name} is open twice"
        elif not story.is_drop:
            assert replayed[name] + still_open[name] >= 1, f"{name} is lost"
            assert not story.is_calm or replayed[name] + still_open[name] == 1, f"{name} is there twice"
    gone = sum(name not in still_open for name in everything)
    assert gone <= result.done, "more is done than is told"
    if story.is_calm:
        assert gone == result.done, "less is done than is told"
    if story.is_calm and story.stop is None:
        meant = sum(letter == "A" for letter in everything.values())
        assert result.done == (meant if story.limit is None else min(meant, story.limit))
        assert result.trouble is None

    carry(topics, deed)
    assert {name for name, letter in everything.items() if letter == "x"} == set(names(topics.open()))
    if not story.is_drop:
        assert {name for name, letter in everything.items() if letter == "A"} == set(names(topics.on("orders")))


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(STORIES)
def test_no_story_loses_a_record(story):
    """Failing messages, failing commits, stops and limits, in any order."""
    check(story)


class CommitsFirst(Redrive):
    """Commits before the copies are acknowledged."""

    def _settle(self, partition, committed):
        if self._window:
            position = self._window[-1].parked.place.offset + 1
            self._log.commit(partition, position)
            committed = position
        return super()._settle(partition, committed)


class KeepsNothing(Redrive):
    """Forgets to append what was not chosen."""

    def _append_again(self, entry):
        entry.delivered(None)


class IgnoresRefusals(Redrive):
    """Takes every answer for a success."""

    def _await_answers(self):
        super()._await_answers()
        for entry in self.taken:
            entry.error = None

    def _take(self, parked):
        taken = super()._take(parked)
        self.taken = [*getattr(self, "taken", ()), *self._window]
        return taken


class KeepsTwice(Redrive):
    """Appends what was not chosen twice."""

    def _append_again(self, entry):
        super()._append_again(entry)
        super()._append_again(entry)


class ForgetsTheStop(Redrive):
    """Commits past a record that a stop left undone."""

    def _settle(self, partition, committed):
        committed = super()._settle(partition, committed)
        if self.result.was_stopped and committed is not None:
            self._log.commit(partition, committed + 1)
        return committed


@pytest.mark.parametrize("flaw", [CommitsFirst, KeepsNothing, IgnoresRefusals, KeepsTwice, ForgetsTheStop])
def test_a_planted_flaw_is_found(flaw):
    """The check above can fail: each of these mistakes breaks a promise that it names."""

    @settings(max_examples=400, suppress_health_check=list(HealthCheck), deadline=None, database=None)
    @given(STORIES)
    def flawed(story):
        check(story, flaw)

    with pytest.raises(BaseException) as caught:
        flawed()
    assert any(word in _all_texts(caught.value) for word in ("is lost", "twice", "is done than is told"))


def _all_texts(error):
    inner = "".join(_all_texts(each) for each in getattr(error, "exceptions", ()))
    return f"{error}{inner}"
