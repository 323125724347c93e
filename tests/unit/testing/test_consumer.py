"""The member of a group that drives a loop without a broker: what it gives, and when its owner hears of it."""

from __future__ import annotations

import pytest

from laneway._core.finished_map import FinishedMap
from laneway._kafka import BrokerUnavailableError, FencedError
from laneway._runtime.partition import Partition, Partitions, Pause
from laneway.testing._consumer import FakeConsumer
from laneway.testing._log import FakeTopic
from support.core import SleepingClock

PLACE = ("orders", 0)


class Owner:
    """Begins each partition at offset 1, and writes down what it hears."""

    def __init__(self):
        self.partitions, self.heard = Partitions(), []

    def assigned(self, places):
        self.heard.append(("assigned", places))
        for place in places:
            self.partitions.begin(Partition(place, [], 1))
        return dict.fromkeys(places, 1)

    def revoked(self, places):
        self.heard.append(("revoked", places))

    def lost(self, places):
        self.heard.append(("lost", places))

    def out_of_range(self, place, offset):
        self.heard.append(("out of range", place, offset))


class Scene:
    def __init__(self):
        self.topic, self.owner, self.clock = FakeTopic("orders", 1), Owner(), SleepingClock()
        for number in range(5):
            self.topic.append(b"k", b"%d" % number, (), 1, 0)
        self.consumer = FakeConsumer({PLACE: self.topic.log(0)}, clock=self.clock)
        self.consumer.subscribe(["orders"], self.owner)

    def read(self, most=100):
        return [(record.offset, record.epoch) for record in self.consumer.read(most, 0.5)]

    def assigned(self):
        self.consumer.assign([PLACE])
        return self.owner


@pytest.fixture
def scene():
    return Scene()


def test_partitions_come_inside_a_read(scene):
    """And are read from where the owner says; time passes only while nothing comes."""
    owner = scene.assigned()
    assert owner.heard == []
    assert scene.read(2) == [(1, 1), (2, 1)]
    assert owner.heard == [("assigned", [PLACE])]
    assert scene.read() == [(3, 1), (4, 1)]
    began = scene.clock.now
    assert scene.read() == []
    assert (scene.clock.now - began, owner.partitions[PLACE].reached) == (0.5, 5)


def test_what_is_released_is_given_back_when_nothing_of_it_is_under_way(scene):
    """Or when the time for that is over; one that has not come yet only does not come."""
    owner = scene.assigned()
    scene.read(1)
    owner.release = lambda places: owner.heard.append(("release", places)) or scene.clock.now + 60
    owner.give_back = lambda places, deadline: owner.heard.append(("give back", places))
    owner.is_drained = lambda places: False
    scene.consumer.release([PLACE, ("orders", 9)])
    assert (scene.consumer.releasing, scene.consumer.give_back()) == ([PLACE], False)
    scene.clock.now += 60
    assert scene.consumer.give_back()
    assert owner.heard[-2:] == [("release", [PLACE]), ("give back", [PLACE])]
    assert (scene.read(), scene.consumer.owned) == ([], set())
    scene.consumer.assign([PLACE])
    scene.consumer.release([PLACE])
    assert (scene.consumer.releasing, scene.consumer.owned) == ([], set())


def test_one_that_the_group_has_given_up_commits_nothing(scene):
    """Its commits are refused, whichever way they go."""
    scene.consumer.is_member = False
    with pytest.raises(FencedError):
        scene.consumer.commit({PLACE: (3, "")})
    scene.consumer.commit_soon({PLACE: (3, "")})
    scene.read()
    assert isinstance(scene.consumer.answers()[0][1], FencedError)
    assert scene.consumer.committed == {}


def test_few_records_at_a_time_leave_none_out_behind_finished_ones(scene):
    """Once, a read in which every record had been finished before went on at the end of the log."""
    owner = scene.assigned()
    scene.read(1)
    owner.partitions[PLACE].inherited = FinishedMap([(2, 4)])
    assert [scene.read(2) for _ in range(3)] == [[], [(4, 1)], []]


@pytest.mark.parametrize(("way", "word"), [("revoke", "revoked"), ("lose", "lost")])
def test_what_is_given_back_is_read_no_more(scene, way, word):
    """And belongs to another epoch when it comes back."""
    owner = scene.assigned()
    scene.read(1)
    getattr(scene.consumer, way)([PLACE])
    assert owner.heard[-1] == (word, [PLACE])
    assert scene.read() == []
    scene.assigned()
    assert scene.read(1) == [(1, 3)]


def test_what_has_a_reason_to_be_paused_is_not_read(scene):
    """The owner says so for partitions that come, and later when it asks for it."""
    owner = scene.assigned()
    scene.read(1)
    owner.partitions[PLACE].paused.add(Pause.USER)
    scene.consumer.apply_pauses()
    assert (scene.read(), scene.consumer.paused) == ([], {PLACE})
    owner.partitions[PLACE].paused.clear()
    scene.consumer.apply_pauses()
    assert scene.read(1) == [(2, 1)]


def test_what_an_earlier_owner_has_finished_is_passed_over(scene):
    """As with a broker: it is counted, and the partition was read up to there."""
    owner = scene.assigned()
    scene.read(1)
    owner.partitions[PLACE].inherited = FinishedMap([(2, 4)])
    assert scene.read() == [(4, 1)]
    assert (scene.consumer.passed, owner.partitions[PLACE].reached) == (2, 4)


def test_a_log_that_lost_its_start_is_said_to_the_owner(scene):
    """Which then seeks."""
    owner = scene.assigned()
    scene.read(1)
    scene.topic.log(0).cut(4)
    owner.out_of_range = lambda place, offset: scene.consumer.seek(place, 4) or owner.heard.append(offset)
    assert scene.read() == [(4, 1)]
    assert owner.heard[-1] == 2


def test_one_commit_at_a_time(scene):
    """Its answer comes with a later read, and says what it is the answer to."""
    first = {PLACE: (3, "one")}
    assert scene.consumer.commit_soon(first)
    assert not scene.consumer.commit_soon({PLACE: (4, "two")})
    assert (scene.consumer.answers(), scene.consumer.committed) == ([], {})
    scene.read()
    assert (scene.consumer.answers(), scene.consumer.committed) == ([(first, None)], first)


def test_a_coordinator_that_is_away(scene):
    """It takes no commit and answers no question."""
    error = scene.consumer.trouble = BrokerUnavailableError("away")
    assert scene.consumer.commit_soon({PLACE: (3, "one")})
    scene.read()
    assert (scene.consumer.answers(), scene.consumer.committed) == ([({PLACE: (3, "one")}, error)], {})
    with pytest.raises(BrokerUnavailableError):
        scene.consumer.commit({PLACE: (3, "one")})
    with pytest.raises(BrokerUnavailableError):
        scene.consumer.known([PLACE], 1.0)


def test_it_gives_everything_back_when_it_is_closed(scene):
    """As a member that leaves."""
    owner = scene.assigned()
    scene.read(1)
    scene.consumer.close()
    assert owner.heard[-1] == ("revoked", [PLACE])
    assert scene.consumer.is_closed
