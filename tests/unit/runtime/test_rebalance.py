"""Partitions that come and go: how long that may take, what counts afterwards, and what is done when a log has changed.

A log that has lost its end cannot be told from one that was made anew: both are read from their first record on.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from laneway._core.call import Call
from laneway._core.finished_map import CLEAN, FinishedMap, decode_finished, since_of, with_topic_id
from laneway._kafka import BrokerUnavailableError, GroupConsumer
from laneway._kafka import group_consumer as _group_consumer
from laneway._runtime.flow import Flow
from laneway._runtime.handler_worker import HandlerWorker
from laneway._runtime.lease import Lease
from laneway._runtime.partition import Partitions, Pause
from laneway._runtime.rebalance import Rebalance
from laneway._runtime.recovery import Recovery
from laneway._runtime.recreated_topics import Logs
from laneway._runtime.topics import ReadPlan
from laneway.errors import DataLossError
from laneway.events import PartitionsRevoked
from support.core import FakeSender, Heard, SleepingClock, make_record, make_route

TOPIC = "orders"
PLACE = (TOPIC, 0)
BUDGET, PATIENCE = 6.0, 18.0
ABSENT = KafkaException(KafkaError(KafkaError._WAIT_COORD))
EXPELLED = KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))


class Consumer:
    """librdkafka's consumer: keeps commits, and where each partition is read from."""

    def __init__(self, clock, committed):
        self._clock = clock
        self.known = committed
        self.trouble = None
        """What a question or a commit ends with."""
        self.commits, self.assigned, self.paused = [], [], []

    def subscribe(self, topics, **rest):
        pass

    def committed(self, parts, timeout):
        if self.trouble:
            self._clock.sleep(timeout)
            raise self.trouble
        return [TopicPartition(part.topic, part.partition, *self.known) for part in parts]

    def commit(self, offsets, asynchronous):
        if self.trouble:
            raise self.trouble
        self.commits += [(part.offset, part.metadata) for part in offsets]
        return []

    def incremental_assign(self, parts):
        self.assigned += [part.offset for part in parts]

    def incremental_unassign(self, parts):
        pass

    def pause(self, parts):
        self.paused += parts


class Scene:
    """One partition of one topic, its handler, and who is told what becomes of it; turns are ended by hand."""

    def __init__(self, monkeypatch, function=None, *, is_forgiving=False, committed=(0, CLEAN), topic_id=""):
        self.clock = SleepingClock()
        self.consumer = Consumer(self.clock, committed)
        monkeypatch.setattr(_group_consumer, "Consumer", lambda options: self.consumer)
        self.route, self.sender = make_route(function, lanes=4), FakeSender()
        self.station = HandlerWorker(
            self.route, "billing", lanes=4, sender=self.sender, host=None,
            listener=Heard(),
        )  # fmt: skip
        self.processor = self.station.processor
        self.clock.moved = self.processor.tick
        stations = {TOPIC: [self.station]}
        self.partitions = Partitions()
        self.bounds = (0, 1_000)
        self.heard = Heard()
        self.topic_id = topic_id
        admin = SimpleNamespace(
            bounds=lambda *asked: self._answer(), partitions=lambda *asked: [0],
            topic_ids=lambda *asked: self._answer() and {TOPIC: self.topic_id},
            high_watermarks=lambda places, *rest: dict.fromkeys(places, self._answer()[1]),
        )  # fmt: skip
        admin.ask_topic_ids = lambda *asked: SimpleNamespace(is_done=True, result=admin.topic_ids)
        plan = ReadPlan(topics=[TOPIC], skip_lost=is_forgiving, budget=BUDGET, patience=PATIENCE)
        self.group = GroupConsumer({}, "billing")
        self.logs = Logs(
            plan, source=self.group, workers=stations, partitions=self.partitions,
            monitor=SimpleNamespace(restart=lambda topic: None), admin=admin, notes=self.heard,
        )  # fmt: skip
        self.rebalance = Rebalance(
            plan, source=self.group, commits=self.group, workers=stations, partitions=self.partitions,
            flow=Flow(self.partitions, stations, [TOPIC]),
            recovery=Recovery("billing", [self.station], admin=None, options={}), logs=self.logs, admin=admin,
            lease=Lease(float("inf")), listener=self.heard, clock=self.clock,
        )  # fmt: skip
        self.group.subscribe([TOPIC], self.rebalance)

    def _answer(self):
        if self.bounds is None:
            raise BrokerUnavailableError("nobody answers")
        return self.bounds

    def assign(self):
        """As librdkafka does, inside a read; what it commits is the sign that we are at work."""
        self.group._on_assign(self.consumer, [TopicPartition(*PLACE)])
        self.rebalance.settle_in()
        self.consumer.commits.clear()

    @property
    def position(self):
        """The offset that is to be read next, and is not in the log."""
        return self.partitions[PLACE].position if PLACE in self.partitions else 0

    def revoke(self):
        """Give the partition back, and say how long that took."""
        began = self.clock.now
        self.group._on_revoke(self.consumer, [TopicPartition(*PLACE)])
        return self.clock.now - began

    def lose(self):
        self.group._on_lost(self.consumer, [TopicPartition(*PLACE)])

    def read(self, offsets):
        """Let records reach the handler, each of a key of its own."""
        records = [make_record(offset, b"key-%d" % offset) for offset in offsets]
        for record in records:
            record.epoch = self.group.epoch
        self.partitions[PLACE].delivered = records[-1].offset + 1
        self.processor.admit(records)

    def begin(self, count):
        return [self.processor.take() for _ in range(count)]

    def end(self, turn):
        """Let a call come back."""
        self.processor.settle(turn, Call(self.route, self.clock).single(turn))
        self.processor.tick()

    def work_off(self):
        while turn := self.processor.take():
            self.end(turn)

    def due(self):
        """What may be committed: the offset, and those finished past it."""
        offset, end, unfinished = self.partitions[PLACE].progress()
        return offset, [at for at in range(offset, end) if at not in unfinished]


def failing(_):
    raise ConnectionError("planted")


@pytest.fixture(name="scene")
def _scene(monkeypatch):
    def made(function=None, **rest):
        found = Scene(monkeypatch, function, **rest)
        found.assign()
        return found

    return made


# --- giving back -----------------------------------------------------------------------------------------------------


def test_a_call_that_hangs_holds_a_revocation_up_for_its_budget_only(scene):
    """Then what is finished is committed, with the record of that call unfinished, and the partition is let go of."""
    made = scene()
    made.read(range(10))
    _hanging, second, third = made.begin(3)
    made.end(second)
    made.end(third)
    took = made.revoke()

    assert BUDGET <= took < BUDGET + 0.1
    [(offset, text)] = made.consumer.commits
    assert (offset, [at for at in range(10) if decode_finished(offset, text).has(at)]) == (0, [1, 2])
    assert PLACE not in made.partitions
    assert made.heard.events[-1] == PartitionsRevoked(TOPIC, (0,), False)


def test_a_revocation_is_over_when_what_was_begun_has_ended(scene):
    """At once, and what was not begun is the next owner's."""
    made = scene()
    made.read(range(10))
    turns = made.begin(3)

    def moved():
        made.processor.tick()
        while made.clock.now >= 1001 and turns:
            made.end(turns.pop())

    made.clock.moved = moved
    took = made.revoke()

    assert 1 <= took < 1.1
    [(offset, text)] = made.consumer.commits
    assert (offset, since_of(text) > 0) == (3, True)


def test_a_partition_that_is_worked_off_is_given_back_as_such(scene):
    """The commit says that nothing is under way, so the next owner has nothing to look for."""
    made = scene()
    made.read(range(10))
    made.work_off()

    assert made.revoke() < 0.1
    assert made.consumer.commits == [(10, CLEAN)]


def test_a_member_that_leaves_waits_for_no_call(scene):
    """What could be finished was finished before; it commits that."""
    made = scene()
    made.read(range(10))
    first, _hanging = made.begin(2)
    made.end(first)
    made.rebalance.is_leaving = True

    assert made.revoke() == 0
    assert [offset for offset, _ in made.consumer.commits] == [1]


def test_a_coordinator_that_is_away_costs_a_second_more(scene):
    """The last commit is tried again and again; without it the next owner repeats what was done here."""
    made = scene()
    made.read(range(10))
    made.end(made.begin(2)[0])
    made.consumer.trouble = ABSENT

    assert BUDGET + 1 <= made.revoke() < BUDGET + 1.2
    assert made.consumer.commits == []
    assert PLACE not in made.partitions


def test_a_group_that_goes_on_without_us_is_told_nothing(scene):
    """It would refuse every commit: nobody waits for it."""
    made = scene()
    made.read(range(10))
    made.work_off()
    made.consumer.trouble = EXPELLED

    assert made.revoke() < 0.1
    assert PLACE not in made.partitions


def test_what_is_lost_is_neither_waited_for_nor_committed(scene):
    """Somebody else has it already."""
    made = scene()
    made.read(range(10))
    made.end(made.begin(2)[0])
    began = made.clock.now
    made.lose()

    assert made.clock.now == began
    assert made.consumer.commits == []
    assert PLACE not in made.partitions
    assert made.heard.events[-1] == PartitionsRevoked(TOPIC, (0,), True)


# --- late results ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [None, failing])
@pytest.mark.parametrize("way", ["revoke", "lose"])
def test_late_results_of_a_former_ownership_change_nothing(scene, way, function):
    """Success and failure alike: nothing is finished, nothing is copied, while the partition is ours once more."""
    made = scene(function)
    made.read(range(4))
    late = made.begin(4)
    getattr(made, way)()
    made.assign()
    made.read(range(4))
    assert made.due() == (0, [])
    for turn in late:
        made.end(turn)

    assert made.due() == (0, [])
    assert made.sender.sent == []
    made.work_off()
    assert made.due() == (4, [])
    assert len(made.sender.sent) == (4 if function else 0)


def test_late_results_change_nothing_while_the_partition_is_anothers(scene):
    """Not even what would be committed, should it come back before they are in."""
    made = scene()
    made.read(range(4))
    late = made.begin(2)
    made.lose()
    for turn in late:
        made.end(turn)
    made.assign()

    assert made.due() == (0, [])


# --- offsets that are not in the log ---------------------------------------------------------------------------------


def at_100(scene, **rest):
    """A partition that is to be read from offset 100 on, with the call of the record before it under way."""
    made = scene(committed=(97, CLEAN), **rest)
    made.read([97, 98])
    made.work_off()
    made.read([99])
    made.late = made.begin(1)
    made.seeks = made.consumer.assigned = []
    return made


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ((150, 200), "offset 100 is gone .the log now begins at 150"),
        ((0, 30), r"orders\[0\] is at offset 100, its log ends at 30"),
        ((40, 80), r"orders\[0\] is at offset 100, its log ends at 80"),
        ((0, 150), r"orders\[0\] is at offset 100, its log ends at 150"),
    ],
)
def test_a_loss_ends_the_run_by_default(scene, bounds, told):
    """Records that were deleted, a topic that was recreated, and a log that was cut short: nothing is passed over."""
    made = at_100(scene)
    made.bounds, epoch = bounds, made.group.epoch
    with pytest.raises(DataLossError, match=f"{told}.*on_data_loss: continue"):
        made.rebalance.out_of_range(PLACE, made.position)

    assert (made.seeks, made.group.epoch, made.processor.tally.lost) == ([], epoch, 0)


def test_a_run_that_ends_because_of_deleted_records_commits_nothing_past_them(scene):
    """The next one finds the same loss, and its user decides."""
    made = at_100(scene)
    made.bounds = (150, 200)
    with pytest.raises(DataLossError):
        made.rebalance.out_of_range(PLACE, made.position)
    made.end(*made.late)
    made.revoke()

    assert made.consumer.commits == [(100, CLEAN)]


def test_records_that_were_deleted_are_counted_and_passed(scene):
    """What was read before is finished as ever, and what is left is read from its first record on."""
    made = at_100(scene, is_forgiving=True)
    made.bounds = (150, 200)
    made.rebalance.out_of_range(PLACE, made.position)
    assert (made.seeks, made.processor.tally.lost) == ([150], 50)
    assert made.heard.notes == ["orders[0]: offset 100 is gone (the log now begins at 150): reading continues there"]

    made.read(range(150, 160))
    made.work_off()
    assert made.due() == (99, list(range(100, 160)))
    made.end(*made.late)
    assert made.due() == (160, [])


def test_the_loss_is_counted_from_where_the_log_was_read_to(scene):
    """Offsets that held no record are not lost with those behind them."""
    made = at_100(scene, is_forgiving=True)
    made.partitions[PLACE].reached = 120
    made.bounds = (150, 200)
    made.rebalance.out_of_range(PLACE, made.position)

    assert made.processor.tally.lost == 30


@pytest.mark.parametrize(
    "bounds", [pytest.param((0, 30), id="recreated"), pytest.param((40, 80), id="cut short"), (0, 0)]
)
def test_a_log_that_ends_before_our_offset_is_read_from_its_first_record(scene, bounds):
    """All that is there, also what was handled before the log was cut short; late results of the old log are void."""
    made = at_100(scene, is_forgiving=True)
    made.bounds, epoch = bounds, made.group.epoch
    low, high = bounds
    made.rebalance.out_of_range(PLACE, made.position)
    assert (made.seeks, made.group.epoch, made.processor.tally.lost) == ([low], epoch + 1, 0)
    [note] = made.heard.notes
    assert note.endswith(f"orders[0] is at offset 100, its log ends at {high}; it is read from its start")
    made.processor.tick()
    made.end(*made.late)
    assert made.due() == (low, [])

    made.read(range(low, low + 120))
    made.work_off()
    assert made.due() == (low + 120, [])
    made.revoke()
    assert made.consumer.commits == [(low + 120, CLEAN)]


def test_a_log_that_has_grown_past_our_offset_since_is_another_one(scene):
    """Recreated, or cut short and written on: it is read from its first record, and nothing is counted as deleted."""
    made = at_100(scene, is_forgiving=True)
    made.bounds, epoch = (0, 150), made.group.epoch
    made.rebalance.out_of_range(PLACE, made.position)
    assert (made.seeks, made.group.epoch, made.processor.tally.lost) == ([0], epoch + 1, 0)
    made.read(range(150))
    made.end(*made.late)
    made.work_off()

    assert made.due() == (150, [])


def test_what_a_former_owner_had_finished_of_the_old_log_says_nothing_of_the_new_one(scene):
    """Its map would pass records over that nobody has handled."""
    made = scene(is_forgiving=True, committed=(100, "L1rAgM"))
    assert made.partitions[PLACE].inherited is not None
    made.bounds = (0, 30)
    made.rebalance.out_of_range(PLACE, made.position)

    assert made.partitions[PLACE].inherited is None


def test_a_partition_that_is_held_stays_so_at_its_new_offset(scene):
    """A station that is full is full, wherever the log begins."""
    made = at_100(scene, is_forgiving=True)
    made.partitions[PLACE].paused.add(Pause.BUFFER)
    made.group.apply_pauses()
    made.consumer.paused.clear()
    made.bounds = (150, 200)
    made.rebalance.out_of_range(PLACE, made.position)

    assert [(part.topic, part.partition) for part in made.consumer.paused] == [PLACE]


@pytest.mark.parametrize("is_forgiving", [True, False])
def test_a_broker_that_is_away_decides_nothing(scene, is_forgiving):
    """The same offset is asked for again; whoever answers then says once more whether it is gone."""
    made = at_100(scene, is_forgiving=is_forgiving)
    made.bounds = None
    made.rebalance.out_of_range(PLACE, made.position)

    assert (made.seeks, made.heard.notes, made.processor.tally.lost) == ([100], [], 0)


def test_what_is_ours_no_longer_is_nobodys_loss(scene):
    """The word that an offset is gone may come after the partition went."""
    made = at_100(scene)
    made.lose()
    made.bounds = (150, 200)
    made.rebalance.out_of_range(PLACE, made.position)

    assert made.seeks == []


def test_a_late_word_on_an_offset_of_before_changes_nothing(scene):
    """It may come after the partition was begun again; what is to be read now is asked for once more."""
    made = at_100(scene, is_forgiving=True)
    made.bounds = (0, 150)
    made.rebalance.out_of_range(PLACE, 100)
    made.processor.tick()
    made.read(range(48))
    made.rebalance.out_of_range(PLACE, 100)
    made.work_off()

    assert (made.seeks, len(made.heard.notes), made.due()) == ([0, 48], 1, (48, []))


# --- coming ----------------------------------------------------------------------------------------------------------


def test_an_answer_is_waited_for_as_long_as_the_group_waits_for_us(scene):
    """Without what was committed nothing can begin; then the run ends, and nothing was begun."""
    made = scene()
    made.revoke()
    made.consumer.trouble = ABSENT
    began = made.clock.now
    with pytest.raises(BrokerUnavailableError):
        made.assign()

    assert PATIENCE <= made.clock.now - began < PATIENCE + 6
    assert PLACE not in made.partitions


def test_a_member_that_leaves_waits_for_no_answer(scene):
    """A process that was told to end does not wait for a broker first."""
    made = scene()
    made.revoke()
    made.consumer.trouble, made.rebalance.is_leaving = ABSENT, True
    began = made.clock.now
    with pytest.raises(BrokerUnavailableError):
        made.assign()

    assert made.clock.now - began <= 5


def test_all_answers_together_have_one_patience(monkeypatch):
    """The group does not wait longer for a member that asks about more partitions."""
    made = Scene(monkeypatch, committed=(-1, ""))
    asked = []

    def bounds(topic, partition, *rest):
        made.clock.sleep(1)
        asked.append(partition)
        if asked.count(partition) < 2:
            raise BrokerUnavailableError("no leader")
        return (0, 10)

    made.rebalance._admin.bounds = bounds
    began = made.clock.now
    with pytest.raises(BrokerUnavailableError):
        made.group._on_assign(made.consumer, [TopicPartition(TOPIC, partition) for partition in range(20)])

    assert PATIENCE <= made.clock.now - began < PATIENCE + 3
    assert made.consumer.assigned == []


def test_the_first_commit_of_an_ownership_is_a_precaution(monkeypatch):
    """It is tried for as long as answers are waited for; then the partition is read all the same."""
    made = Scene(monkeypatch)
    made.group._on_assign(made.consumer, [TopicPartition(*PLACE)])
    made.consumer.trouble = ABSENT
    began = made.clock.now
    made.rebalance.settle_in()
    assert made.clock.now - began <= PATIENCE + 0.1
    assert PLACE in made.partitions

    made.consumer.trouble = None
    made.rebalance.settle_in()
    assert made.consumer.commits == []


def test_the_first_commit_says_that_something_may_be_under_way(monkeypatch):
    """Before the first record runs, whoever was the last to say that nothing is; and only once."""
    made = Scene(monkeypatch, committed=(97, CLEAN))
    made.group._on_assign(made.consumer, [TopicPartition(*PLACE)])
    assert made.consumer.commits == []
    made.rebalance.settle_in()
    made.rebalance.settle_in()

    [(offset, text)] = made.consumer.commits
    assert (offset, since_of(text) > 0) == (97, True)


def test_what_a_former_owner_has_finished_is_not_lost(scene):
    """Its map tells of 40 of the 50 records that were deleted."""
    made = at_100(scene, is_forgiving=True)
    made.partitions[PLACE].inherited = FinishedMap([(101, 121), (130, 155)])
    made.bounds = (150, 200)
    made.rebalance.out_of_range(PLACE, made.position)

    assert made.processor.tally.lost == 10


def test_a_loss_is_counted_once(scene):
    """Also when more is deleted before the first record is read."""
    made = at_100(scene, is_forgiving=True)
    made.bounds = (150, 200)
    made.rebalance.out_of_range(PLACE, made.position)
    made.bounds = (180, 200)
    made.rebalance.out_of_range(PLACE, made.position)

    assert made.processor.tally.lost == 80


@pytest.mark.parametrize("bounds", [(0, 30), (0, 150)])
def test_the_offset_of_an_old_log_is_not_committed_to_a_new_one(scene, bounds):
    """A run that ends because of it would else leave word to pass over what is written there until it starts again."""
    made = at_100(scene)
    made.bounds = bounds
    with pytest.raises(DataLossError):
        made.rebalance.out_of_range(PLACE, made.position)
    made.end(*made.late)
    made.rebalance.is_leaving = True
    made.revoke()

    assert made.consumer.commits == []


@pytest.mark.parametrize("is_first", [True, False])
def test_the_first_question_has_the_patience_of_all(monkeypatch, is_first):
    """In a process that has had no partitions yet, and in one whose last ones came long ago."""
    made = Scene(monkeypatch)
    if not is_first:
        made.assign()
        made.revoke()
        made.clock.sleep(1_000)
    made.consumer.trouble, began = ABSENT, made.clock.now
    with pytest.raises(BrokerUnavailableError):
        made.assign()

    assert PATIENCE <= made.clock.now - began < PATIENCE + 6


def test_a_coordinator_that_is_away_does_not_end_a_run_whose_retry_topic_seems_new(scene):
    """It is asked again at the next look."""
    made = scene()
    made.logs.suspect(TOPIC, {PLACE: 3})
    made.consumer.trouble = ABSENT
    began = made.clock.now
    made.logs.settle_suspects()

    assert made.clock.now - began <= 1
    assert made.partitions[PLACE].paused == {Pause.RECREATED}


def suspected(scene, known, **rest):
    """A topic of which 100 records were read and three wait seems to be recreated."""
    made = at_100(scene, **rest)
    made.work_off()
    made.end(*made.late)
    made.logs.suspect(TOPIC, {PLACE: 103})
    made.consumer.known = known
    return made


def test_a_retry_topic_that_was_not_recreated_is_read_on(scene):
    """A broker that has only just come back may say that it is shorter than it is; its commits are still there."""
    made = suspected(scene, (97, CLEAN))
    made.logs.settle_suspects()
    made.logs.settle_suspects()

    assert (made.partitions[PLACE].paused, made.position, made.heard.notes) == (set(), 100, [])


def test_a_retry_topic_that_was_recreated_ends_the_run(scene):
    """What waited there is lost, and nobody has said that this does not matter."""
    made = suspected(scene, (-1001, ""))
    with pytest.raises(DataLossError, match="was deleted while it was in use: at least 3 deferred records"):
        made.logs.settle_suspects()


def test_a_retry_topic_that_was_recreated_begins_at_its_start_when_asked_to_go_on(scene):
    """What waited there is counted as lost, once."""
    made = suspected(scene, (-1001, ""), is_forgiving=True)
    made.logs.settle_suspects()
    made.logs.settle_suspects()

    assert (made.partitions[PLACE].paused, made.position, made.processor.tally.lost) == (set(), 0, 3)
    assert made.heard.notes == [
        f"the retry topic {TOPIC} was deleted while it was in use: at least 3 deferred records are lost"
    ]


def test_what_was_read_of_a_recreated_retry_topic_is_finished_first(scene):
    """It is nowhere else; until then nothing is read of the new one."""
    made = suspected(scene, (97, CLEAN), is_forgiving=True)
    made.read([100])
    made.late = made.begin(1)
    made.consumer.known = (-1001, "")
    made.logs.settle_suspects()
    assert (made.partitions[PLACE].paused, made.position) == ({Pause.RECREATED}, 101)
    made.end(*made.late)
    made.logs.settle_suspects()
    assert (made.partitions[PLACE].paused, made.position) == (set(), 0)


def test_a_retry_topic_of_which_nothing_was_read_may_be_another_one(scene):
    """Nothing waited there, and nothing is lost."""
    made = scene()
    made.logs.suspect(TOPIC, {PLACE: 0})
    assert made.partitions[PLACE].paused == set()


def test_a_suspect_that_goes_is_nobodys_loss(scene):
    """Its next owner compares the commit with the log."""
    made = suspected(scene, (-1001, ""))
    made.lose()
    made.logs.settle_suspects()
    assert made.heard.notes == []


# --- topics that are recreated ---------------------------------------------------------------------------------------

OLD, NEW = "o" * 22, "n" * 22


def of(topic_id, text=""):
    """The text of a commit with the id of its topic."""
    return with_topic_id(text, topic_id)


def test_a_commit_names_its_topic(scene):
    """Whoever reads it later knows whether the topic is still the same."""
    made = scene(topic_id=OLD)
    made.read(range(10))
    made.work_off()
    made.revoke()

    assert made.consumer.commits == [(10, of(OLD, CLEAN))]


@pytest.mark.parametrize("text", [of(OLD), of(OLD, CLEAN), of(OLD, "L1rAgM"), of(OLD, "L1n2")])
def test_a_commit_of_a_deleted_topic_ends_the_run(monkeypatch, text):
    """Also when its offset lies inside the new log; nothing is committed."""
    made = Scene(monkeypatch, committed=(100, text), topic_id=NEW)
    with pytest.raises(
        DataLossError, match=r"deleted and recreated: orders\[0\] is at offset 100, its log ends at 1000"
    ):
        made.assign()

    assert (made.consumer.commits, PLACE in made.partitions) == ([], False)


@pytest.mark.parametrize("text", [of(OLD), of(OLD, "L1rAgM"), of(OLD, "L1n2")])
def test_a_commit_of_a_deleted_topic_says_nothing_when_asked_to_go_on(monkeypatch, text):
    """Neither its offset nor what it says is finished."""
    made = Scene(monkeypatch, committed=(100, text), topic_id=NEW, is_forgiving=True)
    made.assign()

    assert (made.consumer.assigned, made.partitions[PLACE].inherited) == ([0], None)
    made.read(range(5))
    made.work_off()
    made.revoke()
    assert made.consumer.commits == [(5, of(NEW, CLEAN))]


@pytest.mark.parametrize("text", ["", "hello", "hello@" + OLD, CLEAN, of(NEW)])
def test_a_commit_that_names_no_other_topic_counts(monkeypatch, text):
    """One of an earlier version, of another tool, or of this very topic."""
    made = Scene(monkeypatch, committed=(100, text), topic_id=NEW)
    made.assign()

    assert made.consumer.assigned == [100]


def test_a_recreated_topic_is_known_without_a_commit(scene):
    """Kafka deletes the group's offsets with the topic; a process that has read it remembers."""
    made = scene(topic_id=OLD, committed=(97, of(OLD)))
    made.revoke()
    made.consumer.known, made.topic_id = (-1, ""), NEW
    with pytest.raises(DataLossError, match=r"orders\[0\] is at offset 97"):
        made.assign()


def test_a_topic_that_is_recreated_while_it_is_read_ends_the_run(scene):
    """At the next look, however the offsets stand; nothing more is committed, in the end neither."""
    made = at_100(scene, topic_id=OLD)
    made.logs.ask()
    assert made.logs.is_sure()
    made.topic_id = NEW
    made.logs.ask()
    with pytest.raises(DataLossError, match=r"orders\[0\] is at offset 97, its log ends at 1000"):
        made.logs.is_sure()
    made.revoke()

    assert made.consumer.commits == []


def test_a_topic_that_is_recreated_while_it_is_read_begins_at_its_start(scene):
    """Results of the old one are void, and not even the ledger of the old one is committed to the new one."""
    made = at_100(scene, topic_id=OLD, is_forgiving=True)
    made.topic_id = NEW
    made.logs.ask()
    assert made.logs.is_sure()
    assert made.seeks == [0]
    assert made.due() == (0, []), "the handler's thread may not have learned of it yet"
    made.processor.tick()
    made.end(*made.late)
    assert made.due() == (0, [])
    made.logs.ask()
    assert made.logs.is_sure()
    assert (made.seeks, len(made.heard.notes)) == ([0], 1)
    made.revoke()
    assert made.consumer.commits == [(0, of(NEW, CLEAN))]


def test_a_topic_that_is_recreated_before_a_partition_goes(scene):
    """The next owner reads the new topic from its start."""
    made = at_100(scene, topic_id=OLD, is_forgiving=True)
    made.topic_id = NEW
    made.revoke()

    assert made.consumer.commits == [(0, of(NEW, CLEAN))]


def test_brokers_that_do_not_answer_decide_nothing_about_a_topic(scene):
    """What is committed names the topic that was read, so nothing is passed over later."""
    made = at_100(scene, topic_id=OLD)
    made.bounds = None
    made.logs.ask()
    assert made.logs.is_sure()
