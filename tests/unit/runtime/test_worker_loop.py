"""The loop that reads, feeds and commits: what it holds back and when, how often it commits and how often it polls."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from types import SimpleNamespace

import pytest

from laneway import Buffer, Retry, Topic
from laneway._core.finished_map import CLEAN, decode_finished
from laneway._kafka import BrokerUnavailableError, FencedError
from laneway._runtime import retry_source as _retry_source
from laneway._runtime.broker_monitor import BrokerView
from laneway._runtime.flow import Flow
from laneway._runtime.handler_worker import HandlerWorker
from laneway._runtime.lease import Lease
from laneway._runtime.partition import Partitions, Pause
from laneway._runtime.rebalance import Rebalance
from laneway._runtime.recreated_topics import Logs
from laneway._runtime.retry_source import RetrySource
from laneway._runtime.topics import ReadPlan
from laneway._runtime.worker_loop import Request, WorkerLoop
from laneway.testing._consumer import FakeConsumer
from laneway.testing._log import Entry
from support.consumers import FakeAssigned
from support.core import FakeSender, Heard, SleepingClock, make_route

SHORTEST_INTERVAL = 6.0
"""Seconds: max_poll_interval is at least the session's time-out, and brokers take none below this by default."""
ENDLESS = 10**9
RETRY = "orders.billing.retry.1"


class EndlessLog:
    """A log that holds a record at each offset before its end, which a test moves."""

    def __init__(self, end=ENDLESS):
        self.start, self.end = 0, end

    def read(self, start, most):
        return [Entry(0, at, 1, b"key", b"value", ()) for at in range(start, min(start + most, self.end))]


class Consumer(FakeConsumer):
    """Writes down what is asked of it, and when."""

    def __init__(self, places, clock):
        self._clock = clock
        committed = dict.fromkeys([*places, *((RETRY, partition) for partition in range(2))], (0, CLEAN))
        super().__init__({place: EndlessLog() for place in places}, clock=clock, committed=committed)
        self.polls, self.pauses, self.resumes, self.commits = [], [], [], []
        self.assign(places)

    @property
    def ends(self):
        return {place: log.end for place, log in self._logs.items()}

    @ends.setter
    def ends(self, ends):
        self._logs |= {place: EndlessLog(end) for place, end in ends.items()}

    def read(self, most, timeout):
        self.polls.append(self._clock.now)
        found = super().read(most, timeout)
        self._clock.sleep(0.001 if found else 0)
        return found

    def pause(self, places):
        if places:
            self.pauses.append(sorted(places))
        super().pause(places)

    def resume(self, places):
        if places:
            self.resumes.append(sorted(places))
        super().resume(places)

    def commit_soon(self, offsets):
        is_sent = super().commit_soon(offsets)
        if is_sent:
            self.commits.append((self._clock.now, {place: at for place, (at, _) in offsets.items()}))
        return is_sent


class Scene:
    """A loop with one worker for each topic, whose handler finishes records when a test says so."""

    def __init__(
        self, monkeypatch, *, topics=("orders",), partitions=2, records=100, limits=None, retries=False, is_shared=False
    ):
        self.clock = clock = SleepingClock()
        self.places = [(topic, partition) for topic in topics for partition in range(partitions)]
        retry_topics = {topics[0]: [RETRY]} if retries else {}
        stations = {topic: [_station(topic, records)] for topic in [*topics, *([RETRY] if retries else [])]}
        if is_shared:
            shared = [_station(topics[0], records, Retry.steps("5s"))]
            stations = {topic: shared for topic in stations}  # noqa: C420 - one worker is what is meant
        self.partitions = Partitions()
        self.flow = Flow(self.partitions, stations, topics)
        monkeypatch.setattr(_retry_source, "AssignedConsumer", self._reader_made)
        self.retry_source = RetrySource([RETRY] if retries else [], self.partitions, {}, skip_lost=True)
        self.readers = []
        self.monitor = SimpleNamespace(view=BrokerView(), recreated=deque())
        recovery = SimpleNamespace(is_idle=True, begin=lambda *_, **__: [], end=lambda *_: None, done=list)
        plan = ReadPlan(topics=list(topics), retry_topics=retry_topics, limits=limits)
        self.consumer = Consumer(self.places, clock)
        admin = SimpleNamespace(
            topic_ids=lambda *_: {}, ask_topic_ids=lambda *_: SimpleNamespace(is_done=True, result=dict)
        )  # fmt: skip
        logs = Logs(
            plan, source=self.consumer, workers=stations, partitions=self.partitions, monitor=None, admin=admin,
            notes=Heard(),
        )  # fmt: skip
        monkeypatch.setattr(Lease, "now", staticmethod(clock.monotonic))
        self.lease = Lease(10.0)
        rebalance = Rebalance(
            plan, source=self.consumer, commits=self.consumer, workers=stations, partitions=self.partitions,
            flow=self.flow, recovery=recovery, logs=logs, admin=None, lease=self.lease, listener=Heard(), clock=clock,
        )  # fmt: skip
        self.loop = WorkerLoop(
            plan, source=self.consumer, rebalance=rebalance, flow=self.flow, recovery=recovery, workers=stations,
            retry_source=self.retry_source, monitor=self.monitor, clock=clock,
        )  # fmt: skip
        self.consumer.subscribe(plan.topics, rebalance)
        self.stations = SimpleNamespace(**{topic: found for topic, (found,) in stations.items() if topic != RETRY})
        self.retry_station = stations[RETRY][0] if retries else None

    @property
    def delivered(self):
        return {place: view.delivered for place, view in self.loop.status().partitions.items()}

    def paused(self, reason):
        return {place for place, partition in self.partitions.items() if reason in partition.paused}

    def _reader_made(self, options, *, skip_lost):
        self.readers.append(FakeAssigned(dict.fromkeys(range(2), range(ENDLESS))))
        return self.readers[-1]

    def is_due(self, end):
        """The monitor says that so much of the retry topic may be read."""
        due = {place: (part.epoch, end) for place, part in self.partitions.items() if place[0] == RETRY}
        self.monitor.view = BrokerView(due=due)

    def run(self, seconds, *, every=0.0, work=lambda: None):
        """So many seconds of the loop's life, in which something is done again and again."""
        until, due = self.clock.now + seconds, self.clock.now + every
        while self.clock.now < until:
            if pause := self.loop.step():
                self.clock.sleep(pause)
            if self.clock.now >= due:
                due = self.clock.now + every
                work()

    def finish(self, count=ENDLESS, *, topic="orders", is_wanted=lambda offset: True):
        """Let the handler take up to so many records, and finish those that are wanted."""
        station = getattr(self.stations, topic)
        station.processor.tick()  # as its runner does, which learns so of new partitions
        for record in station.intake.fetch(count, 0):
            station.processor.steps[0].ledger.see(record.partition, [record.offset])
            if is_wanted(record.offset):
                station.processor.steps[0].ledger.finish(record.partition, record.offset)


def _station(topic, records, retry=None):
    return HandlerWorker(
        make_route(topic=Topic(topic), buffer=Buffer(records=records), retry=retry or Retry()),
        "billing", lanes=4, sender=FakeSender(),
        host=None,
        listener=Heard(),
    )  # fmt: skip


@pytest.fixture(name="scene")
def _scene(monkeypatch):
    return lambda **rest: Scene(monkeypatch, **rest)


# --- room ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 40, 100])
def test_room_that_comes_and_goes_pauses_nothing(scene, count):
    """To pause throws away what is fetched: whoever is full for less than half a second is only waited for."""
    made = scene()
    made.run(30, every=0.4, work=lambda: made.finish(count))

    assert (made.consumer.pauses, made.consumer.resumes) == ([], [])
    assert sum(made.delivered.values()) >= 70 * count


def test_a_long_stall_is_one_pause(scene):
    """Of all partitions, half a second after the last room was gone; the poll goes on, and gives nothing."""
    made = scene()
    made.run(0.4)
    assert made.consumer.pauses == []
    made.run(120)

    assert (made.consumer.pauses, made.consumer.resumes) == ([made.places], [])
    assert made.stations.orders.intake.records == 100


def test_what_was_paused_is_read_again_when_half_of_it_is_worked_off(scene):
    """One resume for one pause, however the room swings below the half, and however it swings afterwards."""
    made = scene()
    made.run(2)
    made.run(4.9, every=0.1, work=lambda: made.finish(1))
    assert (made.consumer.pauses, made.consumer.resumes) == ([made.places], [])
    made.run(30, every=0.4, work=lambda: made.finish(5))

    assert (made.consumer.pauses, made.consumer.resumes) == ([made.places], [made.places])
    assert made.stations.orders.intake.records >= 95


def test_a_full_topic_is_held_at_once_when_others_can_go_on(scene):
    """One pause while it stalls and one resume after it; the other topic does not wait for it."""
    made = scene(topics=("orders", "clicks"))
    full, other = made.places[:2], made.places[2:]

    def produced():
        made.finish(topic="clicks")
        made.consumer.ends |= {place: made.consumer.ends[place] + 5 for place in other}

    made.consumer.ends |= dict.fromkeys(other, 0)
    made.run(0.1, every=0.1, work=produced)
    assert made.consumer.pauses == [full]
    made.run(10, every=0.1, work=produced)
    assert (made.consumer.pauses, made.consumer.resumes) == ([full], [])
    assert sum(made.delivered[place] for place in other) > 900

    made.finish()
    made.run(0.1)
    assert made.consumer.resumes == [full]


def test_a_pause_that_is_asked_for_holds_everything_until_it_is_over(scene):
    """One pause of what may be read, and one resume."""
    made = scene()
    made.run(1, every=0.1, work=made.finish)
    made.loop.request(Request.PAUSE)
    made.run(10, every=0.1, work=made.finish)
    assert made.consumer.pauses == [made.places]
    assert made.loop.status().is_holding
    made.loop.request(Request.RESUME)
    made.run(1, every=0.1, work=made.finish)

    assert (made.consumer.pauses, made.consumer.resumes) == ([made.places], [made.places])


# --- retry topics -----------------------------------------------------------------------------------------------------


def test_retries_are_read_while_the_source_is_full(scene):
    """The same loop reads both, and a topic without room holds only itself."""
    made = scene(retries=True)
    made.run(2)
    assert made.consumer.pauses == [made.places]
    made.is_due(7)
    made.run(0.2)

    assert made.retry_station.intake.records == 14
    assert {made.delivered[RETRY, partition] for partition in range(2)} == {7}
    assert made.loop.status().gaps == 0


def test_retries_wait_for_room_of_their_own(scene):
    """What does not fit is read when there is room; the source goes on meanwhile."""
    made = scene(retries=True)
    made.run(0.1)
    made.is_due(1_000)
    made.run(5, every=0.1, work=made.finish)
    assert made.retry_station.intake.records == 100
    assert sum(made.delivered[place] for place in made.places) > 1_000

    made.retry_station.intake.fetch(60, 0)
    made.run(0.5)
    assert made.retry_station.intake.records > 40


def test_retries_and_their_source_share_one_buffer(scene):
    """What retries take is no room for the source any more, in the same round too; they take half of it at most."""
    made = scene(retries=True, is_shared=True)
    intake = made.stations.orders.intake
    for number in range(20):
        made.run(0.05)
        assert intake.records == 100
        made.is_due(1_000 * (number + 1))
        intake.fetch(60, 0)
    assert 300 < sum(made.delivered[RETRY, number] for number in range(2)) < 900


def test_a_pause_holds_retries_too(scene):
    """Nothing is read at all."""
    made = scene(retries=True)
    made.run(0.1)
    made.loop.request(Request.PAUSE)
    made.run(0.1)
    made.is_due(7)
    made.run(1)
    assert made.retry_station.intake.records == 0
    made.loop.request(Request.RESUME)
    made.run(0.2)
    assert made.retry_station.intake.records == 14


def test_retries_of_partitions_that_come_during_a_pause_are_read_after_it(scene):
    """Once, they were never read again: what held them back was only taken from the sources."""
    made = scene(retries=True)
    made.loop.request(Request.PAUSE)
    made.run(0.3)
    assert made.partitions
    made.loop.request(Request.RESUME)
    made.is_due(7)
    made.run(0.3)
    assert made.retry_station.intake.records == 14


def test_what_is_due_is_read_soon_after_the_monitor_says_so(scene):
    """The group is waited for no longer than half of the time between two questions for what is due."""
    made = scene(retries=True)
    made.consumer.ends = dict.fromkeys(made.places, 0)
    made.run(1)
    waits = [after - before for before, after in pairwise(made.consumer.polls)]
    assert max(waits) <= 0.051


def test_records_that_wait_for_a_connection_are_looked_for_often(scene):
    """What is due is open and has not arrived: both consumers are asked by turns."""
    made = scene(retries=True)
    made.consumer.ends = dict.fromkeys(made.places, 0)
    made.run(0.2)
    made.is_due(7)
    made.run(0.02)
    made.readers[0].is_silent = True
    made.is_due(9)
    count = len(made.consumer.polls)
    made.run(0.1)
    assert len(made.consumer.polls) - count > 8


def test_retries_wait_while_commits_can_tell_of_no_more(scene):
    """All of a topic waits for one partition, because its partitions are read together; then it goes on."""
    made = scene(retries=True, records=200_000)
    made.consumer.ends = dict.fromkeys(made.places, 0)
    made.run(0.1)
    full = made.partitions[RETRY, 1]
    full.delivered = 30_000
    made.retry_station.processor.tick()  # as its runner does, which learns so of its partitions
    made.retry_station.processor.steps[0].ledger.see(1, list(range(30_000)))
    made.retry_station.processor.steps[0].ledger.finish_all((1, offset) for offset in range(1, 30_000, 2))
    made.is_due(40_000)
    made.run(1)
    assert made.retry_station.intake.records == 0
    assert made.paused(Pause.METADATA) == {(RETRY, 1)}

    made.retry_station.processor.steps[0].ledger.finish_all((1, offset) for offset in range(0, 30_000, 2))
    made.run(1)
    assert made.retry_station.intake.records > 10_000


# --- finished offsets that fill the commit ---------------------------------------------------------------------------


def test_a_partition_is_held_before_its_finished_offsets_fill_the_commit(scene):
    """It alone, once, until less is finished past the commit: all of that must fit into the commit's metadata."""
    made = scene(records=50_000)
    odd, even = made.places
    made.consumer.ends = {odd: 40_000, even: 0}
    made.run(5, work=lambda: made.finish(is_wanted=lambda offset: offset % 2))
    assert made.paused(Pause.METADATA) == {odd}
    assert made.consumer.pauses == [[odd]]
    read = made.delivered[odd]
    assert 20_000 < read < 24_000
    made.partitions.failed([odd])
    offset, text = made.partitions.due()[odd]
    assert (offset, len(decode_finished(offset, text))) == (0, read // 2)

    made.consumer.ends = {odd: 40_000, even: 10}
    made.run(5, work=made.finish)
    assert made.delivered == {odd: read, even: 10}
    assert made.consumer.resumes == []

    for offset in range(0, read, 2):
        made.stations.orders.processor.steps[0].ledger.finish(0, offset)
    made.run(5, work=made.finish)
    assert made.paused(Pause.METADATA) == set()
    assert made.delivered == {odd: 40_000, even: 10}
    assert (made.consumer.pauses, made.consumer.resumes) == ([[odd]], [[odd]])


def test_a_partition_is_held_between_two_looks(scene):
    """However many records come between two looks: each read sees where the partition is to be held."""
    made = scene(records=200_000)
    odd, _ = made.places
    made.consumer.ends = {odd: 100_000, made.places[1]: 0}
    for _ in range(40):
        made.loop._tended = made.clock.now  # the next look is far away
        made.loop.step()
    assert made.delivered[odd] < 24_000
    assert made.consumer.pauses == [[odd]]


# --- a process that was stopped for longer than its session lasts -----------------------------------------------------


def stopped(made):
    """It has worked, and wakes up after a long time."""
    made.run(5, every=0.1, work=made.finish)
    assert made.lease.is_valid
    made.clock.now += 60
    made.consumer.commits.clear()
    assert not made.lease.is_valid


def test_calls_begin_again_when_the_group_has_taken_a_commit(scene):
    """It says of every partition what is finished, also what was said before; polls alone bring nothing back."""
    made = scene()
    stopped(made)
    made.consumer.is_silent = True
    made.run(5)
    assert not made.lease.is_valid
    ((_, said),) = made.consumer.commits
    assert set(said) == set(made.places)

    made.consumer.is_silent = False
    made.run(1)
    assert made.lease.is_valid
    made.run(20)
    assert made.lease.is_valid


@pytest.mark.parametrize("error", [FencedError, BrokerUnavailableError])
def test_a_group_that_does_not_take_the_commit_is_asked_again(scene, error):
    """Until it takes one, or has said what is lost: then nothing is left to ask for."""
    made = scene()
    stopped(made)
    made.consumer.trouble = error("planted")
    made.run(5)
    assert not made.lease.is_valid
    assert len(made.consumer.commits) > 5

    made.consumer.lose(made.places)
    made.run(0.2)
    assert made.lease.is_valid


def test_one_who_is_no_member_commits_nothing(scene):
    """Without an identity a client may commit to a group that is empty by now, and take its offsets back."""
    made = scene()
    stopped(made)
    made.consumer.is_member = False
    made.run(5)
    assert (made.consumer.commits, made.lease.is_valid) == ([], False)


# --- commits ---------------------------------------------------------------------------------------------------------


def test_a_commit_comes_four_times_a_second(scene):
    """While records are finished; it says what is finished at that moment, and nothing when that is no news."""
    made = scene()

    def produced():
        made.finish()
        made.consumer.ends = {place: end + 1 for place, end in made.consumer.ends.items()}

    made.consumer.ends = dict.fromkeys(made.places, 0)
    made.run(5, every=0.05, work=produced)
    times = [time for time, _ in made.consumer.commits]
    assert all(0.25 <= after - before < 0.4 for before, after in pairwise(times))
    assert 15 <= len(times) <= 20

    made.run(2)
    made.finish()
    made.run(2)
    count = len(made.consumer.commits)
    assert made.consumer.commits[-1][1] == made.consumer.ends
    made.run(10)
    assert len(made.consumer.commits) == count


def test_many_records_are_committed_before_their_time(scene):
    """After 50,000 that were read: a process that is killed then repeats no more than those. Then it counts anew."""
    made = scene(records=200_000)
    began = made.clock.now
    while not made.consumer.commits and made.clock.now < began + 0.25:
        made.run(0.01, work=made.finish)
    [(moment, said)] = made.consumer.commits
    assert moment - began < 0.1
    assert 50_000 <= sum(said.values()) <= sum(made.delivered.values())

    made.consumer.ends = {place: end + 10 for place, end in made.delivered.items()}
    made.run(0.2, work=made.finish)
    assert len(made.consumer.commits) == 1


def test_fewer_records_wait_for_the_regular_commit(scene):
    """A commit for each read would be a request for each read."""
    made = scene(records=200_000)
    began = made.clock.now
    made.consumer.ends = dict.fromkeys(made.places, 24_999)
    made.run(3, work=made.finish)
    [(moment, said)] = made.consumer.commits

    assert 0.25 <= moment - began < 0.4
    assert said == made.consumer.ends


def test_a_commit_waits_for_the_answer_to_the_one_before(scene):
    """Two under way could change places. Meanwhile none is sent, and then one at once that says everything."""
    made = scene()
    made.consumer.is_silent = True
    made.run(10, every=0.1, work=made.finish)
    assert len(made.consumer.commits) == 1
    made.consumer.is_silent, made.consumer.ends = False, made.delivered
    made.finish()
    made.run(0.3)

    assert [said for _, said in made.consumer.commits[1:]] == [made.delivered]


# --- polls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", ["no room", "room for one now and then", "paused", "stopping"])
def test_polls_are_never_far_apart(scene, situation):
    """A third of max_poll_interval is the most between two of them, whatever the handlers and the user do."""
    made = scene()
    end, worked = made.clock.now + 60, [made.clock.now]
    requests = {"paused": Request.PAUSE, "stopping": Request.STOP}

    def moved():
        if situation.startswith("room") and made.clock.now > worked[0] + 0.49:
            worked[0] = made.clock.now
            made.finish(1)

    made.clock.moved = moved
    if situation in requests:
        made.loop.request(requests[situation])
    made.loop.run(lambda: made.clock.now > end)

    assert made.consumer.polls[-1] > end - 1
    assert max(after - before for before, after in pairwise(made.consumer.polls)) < SHORTEST_INTERVAL / 3


# --- several topics, large records, limits ----------------------------------------------------------------------------


def test_topics_do_not_take_turns_at_being_paused(scene):
    """A topic that is held gives nothing: the last one that can be read is waited for, as if it were the only one."""
    made = scene(topics=("orders", "clicks"))

    def work():
        made.finish(1, topic="orders")
        made.finish(topic="clicks")

    made.run(10, every=0.3, work=work)
    assert (made.consumer.pauses, made.consumer.resumes) == ([made.places[:2]], [])


def test_a_held_topic_does_not_cut_the_reads_of_others(scene):
    """However little room it has by now."""
    made = scene(topics=("orders", "clicks"), records=10_000)
    other = made.places[2:]
    made.consumer.ends |= dict.fromkeys(other, 0)
    made.run(1)
    assert made.consumer.pauses == [made.places[:2]]
    made.finish(3, topic="orders")
    sizes = []
    made.stations.clicks.intake.put = lambda records: sizes.append(len(records))
    made.consumer.ends |= dict.fromkeys(other, 2_000)
    made.run(0.05)
    assert max(sizes) == 1_000


def test_a_partition_that_comes_to_a_held_topic_is_not_read(scene):
    """It would be read into a station that is full."""
    made = scene(topics=("orders", "clicks"))
    made.consumer.ends |= dict.fromkeys(made.places[2:], 0)
    made.run(1)
    assert made.consumer.pauses == [made.places[:2]]
    made.consumer.ends |= {("orders", 2): ENDLESS}
    made.consumer.committed["orders", 2] = (0, CLEAN)
    made.consumer.assign([("orders", 2)])
    made.run(5)
    assert made.stations.orders.intake.records <= 100


def test_large_records_do_not_thrash(scene):
    """The half that must be worked off is one of bytes, too."""
    made = scene(records=20_000)
    station = made.stations.orders
    object.__setattr__(station.spec, "buffer", Buffer(records=20_000, size=8 * 100))
    made.consumer.read, read = (lambda most, timeout: read(1, timeout)), made.consumer.read
    made.run(40, every=1.0, work=lambda: made.finish(1))
    assert (made.consumer.pauses, made.consumer.resumes) == ([made.places], [])


def test_a_buffer_of_one_record_does_not_thrash(scene):
    """Half of one is nothing."""
    made = scene(records=1)
    made.run(60)
    assert (made.consumer.pauses, made.consumer.resumes) == ([made.places], [])


def test_a_partition_that_comes_back_has_not_reached_its_limit(scene):
    """What is left before the limit is read."""
    made = scene(limits={("orders", 0): 10, ("orders", 1): 10})
    place = made.places[0]
    made.run(1)
    assert made.delivered[place] == 10
    made.consumer.revoke([place])
    made.loop.request(Request.PAUSE)
    made.run(0.1)
    made.consumer.assign([place])
    made.run(0.1)
    made.loop.request(Request.RESUME)
    made.finish()
    made.run(1)
    assert made.delivered[place] == 10
