"""A partition: what may be committed, over several handlers, with gaps, and with what former owners have finished."""

from __future__ import annotations

import time

import pytest

from laneway._core.finished_map import CLEAN, NEW, FinishedMap, decode_finished, encode_finished, since_of
from laneway._core.ledger import Ledger
from laneway._kafka import GroupConsumer
from laneway._runtime.partition import Partition, Partitions, Pause, marker_at

TOPIC = "orders"
PLACE = (TOPIC, 0)


class Reader:
    """What reads for one handler: a ledger of what its handler was given and has finished."""

    def __init__(self):
        self.ledger = Ledger()

    def progress(self, place, start):
        found = self.ledger.snapshot(place[1])
        return (start, []) if found is None else found

    def takes(self, offsets):
        self.ledger.see(0, list(offsets))

    def finishes(self, offsets):
        self.ledger.finish_all((0, offset) for offset in offsets)


class Books:
    """One partition and the handlers that read it."""

    def __init__(self, readers=1, start=0, known=None, word=""):
        self.readers = [Reader() for _ in range(readers)]
        self.all = Partitions()
        self.all.begin(Partition(PLACE, self.readers, start, known=known, word=word))
        self.it = self.all[PLACE]

    def put(self, offsets):
        """As the member does: noted first, then on the way to each handler."""
        self.it.delivered = offsets[-1] + 1

    def read(self, offsets):
        self.put(offsets)
        for reader in self.readers:
            reader.takes(offsets)

    def due(self, *, is_last=False):
        return self.it.next_commit(is_last=is_last)


def test_an_owner_that_has_not_come_past_a_killed_one_does_not_say_that_all_is_clean():
    """Once, it did, and the next owner wrote the copies a second time that the killed one had left further on."""
    books = Books(start=3, known=(3, "L1u~1000"), word="L1u~1000")
    books.it.doubtful = 8
    assert books.due(is_last=True) is None
    books.read([3, 4])
    [reader] = books.readers
    reader.finishes([3, 4])
    assert books.due(is_last=True) == (5, "L1u~1000")
    books.read([5, 6, 7])
    reader.finishes([5, 6, 7])
    assert books.due(is_last=True) == (8, CLEAN)


def test_what_is_read_and_unfinished_is_not_committed():
    """The commit is at the lowest unfinished offset and tells of those finished above it."""
    books = Books(start=10)
    books.read(range(10, 20))
    books.readers[0].finishes([10, 11, 13])
    offset, text = books.due()

    assert offset == 12
    assert [at for at in range(12, 20) if decode_finished(offset, text).has(at)] == [13]


def test_an_offset_is_finished_when_every_handler_has_finished_it():
    """The slowest counts, for the commit and for the map."""
    books = Books(readers=3)
    books.read(range(6))
    books.readers[0].finishes([0, 1, 2, 3, 4, 5])
    books.readers[1].finishes([0, 1, 3, 5])
    books.readers[2].finishes([0, 3, 4])
    offset, text = books.due()

    assert offset == 1
    finished = decode_finished(offset, text)
    assert [at for at in range(1, 6) if finished.has(at)] == [3]


def test_a_handler_that_has_not_taken_its_records_yet_holds_the_commit():
    """What waits in its intake is unfinished, whatever the others have done."""
    books = Books(readers=2)
    books.put(range(5))
    books.readers[0].takes(range(5))
    books.readers[0].finishes(range(5))

    assert books.due() == (0, "")
    books.readers[1].takes(range(3))
    books.readers[1].finishes(range(3))
    assert books.due() == (3, "")


def test_a_mark_past_the_last_record_moves_the_commit():
    """Gaps at the end of a log: markers, aborted records."""
    books = Books()
    books.read(range(4))
    books.readers[0].finishes(range(4))
    books.it.reached = 9

    assert books.due() == (9, "")


def test_a_mark_does_not_pass_what_is_on_its_way():
    """Records that were put in and not taken out lie before the mark, and are not finished."""
    books = Books()
    books.put(range(4))
    books.it.reached = 9
    assert books.due() == (0, "")
    books.readers[0].takes(range(4))
    books.readers[0].finishes([1, 2, 3])
    offset, text = books.due()
    assert (offset, decode_finished(0, text).end) == (0, 9)


def test_nothing_is_sent_twice():
    """What was sent is due again only when it has changed, or did not get there."""
    books = Books()
    books.read(range(4))
    books.readers[0].finishes([0])
    due = books.all.due()
    books.all.sent(due)
    assert books.all.due() == {}
    books.all.failed(due)
    assert books.all.due() == due


def test_an_acknowledgement_after_a_failure_does_no_harm():
    """Answers may come for a commit when a later one has failed, or when the partition has gone."""
    books = Books()
    books.read(range(4))
    books.readers[0].finishes([0])
    due = books.all.due()
    books.all.sent(due)
    books.all.failed(due)
    assert books.all.arrived(due) == {PLACE: 1}
    assert books.it.committed == 0
    books.all.end(PLACE)
    assert books.all.arrived(due) == {}
    assert books.all.due() == {}


# --- what former owners have finished ---------------------------------------------------------------------------------


def inherited():
    """Books that begin at 100, where the former owner had 100 and 150 unfinished of those up to 199."""
    text = encode_finished(100, 200, [100, 150])
    books = Books(start=100, known=(100, text))
    books.it.inherited = decode_finished(100, text)
    return books


@pytest.mark.parametrize("is_last", [False, True])
def test_a_map_is_passed_on_until_it_is_read_past(is_last):
    """A commit before the first record, at the end too, says what the one before it said."""
    books = inherited()
    books.it.failed()

    assert books.due(is_last=is_last) == (100, encode_finished(100, 200, [100, 150]))


def test_a_map_and_new_results_are_told_together():
    """What we have finished and what the former owner had."""
    books = inherited()
    books.read([100])
    books.it.reached = 150
    books.readers[0].finishes([100])

    assert books.due() == (150, encode_finished(150, 200, [150]))


def test_a_map_is_not_lost_while_records_past_it_wait_in_the_intake():
    """They were put in and are not in the ledger yet: a kill at this moment must not run what the map tells of."""
    books = inherited()
    books.read([100])
    books.it.reached = 150
    books.put([150, 200, 201])
    offset, text = books.due() or (100, encode_finished(100, 200, [100, 150]))
    assert (offset, decode_finished(offset, text).missing(100)) == (100, [100, 150])
    assert books.it.inherited is not None

    books.it.reached = 200
    books.readers[0].takes([150, 200, 201])
    offset, text = books.due() or (100, encode_finished(100, 200, [100, 150]))
    # Past 150 all is finished up to 200, because the former owner had finished it.
    assert (offset, decode_finished(offset, text).end) == (100, 200)
    assert [at for at in range(100, 202) if not decode_finished(offset, text).has(at)] == [100, 150, 200, 201]
    assert books.it.inherited is None


def test_a_map_that_is_read_past_is_forgotten():
    """Then the ledger knows it all, and no record needs to be asked about."""
    books = Books(start=5, known=(5, encode_finished(5, 8, [5])))
    books.it.inherited = FinishedMap([(6, 8)])
    books.read([5])
    books.it.reached = 8
    books.due()
    assert books.it.inherited is None


# --- marks ------------------------------------------------------------------------------------------------------------


def test_a_clean_end_says_so():
    """At the end, with nothing unfinished, the next owner need not look for copies."""
    books = Books()
    books.read(range(3))
    books.readers[0].finishes(range(3))
    assert books.due() == (3, "")
    assert books.due(is_last=True) == (3, CLEAN)


def test_an_end_with_something_unfinished_is_not_clean():
    """Something was under way, or was left: copies of it may be there."""
    books = Books()
    books.read(range(3))
    books.readers[0].finishes([0])
    assert books.due(is_last=True) == (1, "")


def test_before_the_first_record_it_says_that_somebody_is_at_work():
    """Where the last owner ended cleanly, and where there was none: both would look clean after a kill."""
    assert Books(start=7, known=(7, CLEAN)).it.first_commit() == (7, "")
    assert Books(start=7).it.first_commit() == (7, "")


@pytest.mark.parametrize("text", ["", "by another tool", "L1"])
def test_after_a_reset_the_commit_says_since_when_work_is_under_way(text):
    """A reset clears the metadata, and others write their own: what was copied before does not count any more."""
    word = marker_at((7, text))
    books = Books(start=7, known=(7, text), word=word)

    assert books.it.first_commit() == (7, word)
    assert abs(since_of(word) - time.time() * 1000) < 60_000
    assert books.it.since == since_of(word)


def test_the_time_of_a_killed_owner_is_kept_and_stands_behind_its_map():
    """Until the end is clean: what it had copied may be of records that are not committed yet."""
    word = marker_at((7, "L1u~1000"))
    assert word == "L1u~1000"
    books = Books(start=7, known=(7, "L1u~1000"), word=word)
    books.read(range(7, 12))
    books.readers[0].finishes([9])
    offset, text = books.due()

    assert (offset, text.partition("~")[2]) == (7, "1000")
    assert [at for at in range(7, 12) if decode_finished(offset, text).has(at)] == [9]
    assert books.it.first_commit() is None
    books.readers[0].finishes([7, 8, 10, 11])
    assert books.due() == (12, "L1u~1000")
    assert books.due(is_last=True) == (12, CLEAN)


def test_a_new_group_says_so_until_it_has_something_else_to_say():
    """Those that begin together with it must not take its first commits for those of a group that was there before."""
    books = Books(start=7, word=f"{NEW}6")
    assert books.it.first_commit() == (7, f"{NEW}6")
    books.read([7, 8])
    books.readers[0].finishes([7])
    assert books.due() == (8, f"{NEW}6")
    books.readers[0].finishes([8])
    assert books.due(is_last=True) == (9, CLEAN)


def test_what_is_not_clean_needs_no_mark():
    """It says so already, and its map is not to be overwritten."""
    text = encode_finished(7, 20, [7])
    assert Books(start=7, known=(7, "L1u~5")).it.first_commit() is None
    assert Books(start=7, known=(7, text)).it.first_commit() is None


def test_a_partition_is_held_before_its_map_fills_the_metadata():
    """It is read no further until less is finished past the commit."""
    books = Books()
    books.read(range(22_000))
    books.readers[0].finishes(range(1, 22_000, 2))
    assert books.it.may_read_on()
    books.read(range(22_000, 23_500))
    assert not books.it.may_read_on()
    books.readers[0].finishes(range(0, 20_000, 2))
    assert books.it.may_read_on()


def test_what_a_former_owner_has_told_of_is_always_read():
    """As long as it is not read, nothing of it can be finished: the map would stay as it is, and the partition too."""
    text = encode_finished(0, 60_000, [0, *range(1_000, 60_000, 61)])
    books = Books(known=(0, text))
    books.it.inherited = decode_finished(0, text)
    assert len(text) > 2_500
    assert books.it.may_read_on()
    books.it.delivered = books.it.inherited.end - 1
    assert books.it.may_read_on()


def test_of_a_map_that_does_not_fit_the_most_is_told():
    """A text that is too long would be refused, and the offset with it; what is left out is run again."""
    books = Books()
    books.read(range(100_000))
    books.readers[0].finishes(range(1, 100_000, 2))

    offset, text = books.due()
    assert offset == 0
    assert len(decode_finished(0, text)) == 11_988
    assert not books.it.may_read_on()


def test_a_partition_that_ends_leaves_nothing_behind():
    """When it comes back it begins where the group's offset is, and nothing of before counts."""
    books = Books()
    books.read(range(9))
    books.it.reached = 12
    books.all.end(PLACE)
    assert (dict(books.all), books.all.spanned) == ({}, 12)
    books.readers[0].ledger.forget(0)
    books.all.begin(Partition(PLACE, books.readers, 4, known=(4, "")))
    assert books.all[PLACE].position == 4
    assert books.all[PLACE].progress() == (4, 4, [])
    assert (books.all.due(), books.all.spanned) == ({}, 12)


# --- how the member passes over what is finished ----------------------------------------------------------------------


class Message:
    """What a client gives."""

    def __init__(self, offset):
        self._offset = offset

    def error(self):
        return None

    def topic(self):
        return TOPIC

    def partition(self):
        return 0

    def offset(self):
        return self._offset

    def key(self):
        return b"k"

    def value(self):
        return b"v"

    def headers(self):
        return None

    def timestamp(self):
        return (1, 1_700_000_000_000)


class Client:
    """A client that gives what it is told to, and lets something happen between the first record and the others."""

    def __init__(self, offsets, between=lambda: None):
        self._offsets, self._between = list(offsets), between

    def poll(self, timeout):
        return Message(self._offsets[0])

    def consume(self, most, timeout):
        self._between()
        return [Message(offset) for offset in self._offsets[1:]]


class Owner:
    """Owns the partition, and does nothing when others come."""

    def __init__(self):
        self.partitions = Books(start=5).all


@pytest.fixture
def membership():
    made = GroupConsumer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, "group")
    real = made._consumer
    made._topics, made._owner = {TOPIC: TOPIC}, Owner()
    yield made
    real.close()


def test_a_map_is_kept_when_records_past_it_are_read(membership):
    """It goes into commits until the ledger knows of all before its end: the member must not forget it."""
    partition = membership._owner.partitions[PLACE]
    partition.inherited = FinishedMap([(6, 8)])
    membership._consumer = Client(range(5, 11))

    assert [record.offset for record in membership.read(100, 0)] == [5, 8, 9, 10]
    assert (partition.inherited is not None, partition.reached) == (True, 0)
    membership._consumer = Client([11])
    membership.read(1, 0)
    assert partition.reached == 8, "once the records that came with it have been handed over"
    assert membership.passed == 2


def test_a_record_is_of_the_time_before_a_partition_is_taken_away(membership):
    """The group may decide while a read is under way: what was read before is void with the partition."""

    def lose():
        membership.epoch += 1

    membership._consumer = Client([5, 6], lose)
    first, second = membership.read(100, 0)
    assert (first.epoch, second.epoch) == (0, 1)


def test_the_last_commit_repeats_what_is_only_on_its_way():
    """Nobody is there to send it again when the regular one, not answered yet, should fail."""
    books = Books(start=10)
    books.read(range(10, 20))
    books.readers[0].finishes([10, 11, 13])
    said = books.due()
    books.it.sent(said)
    assert books.due() is None
    assert books.due(is_last=True) == said

    books.it.arrived()
    assert books.due(is_last=True) is None


# --- a log that begins again, and what others see ---------------------------------------------------------------------


def test_another_log_keeps_only_why_it_is_held_back():
    """Its commits, marks and map say nothing about the new one; a full buffer is full whatever the log holds."""
    books = inherited()
    books.it.reached, books.it.limit = 150, 180
    books.it.paused.update({Pause.BUFFER, Pause.METADATA, Pause.LIMIT})
    fresh = books.it.restarted(0, word="L1u~7", topic_id="", epoch=9)

    assert (fresh.position, fresh.committed, fresh.inherited, fresh.epoch, fresh.limit) == (0, 0, None, 9, 180)
    assert fresh.paused == {Pause.BUFFER}
    fresh.workers = [Reader()]
    assert fresh.next_commit() == (0, "L1u~7")


def test_a_view_does_not_change():
    """It is of one moment: health compares it with others."""
    books = Books(start=10)
    books.read(range(10, 20))
    books.readers[0].finishes([10, 11, 13])
    view = books.it.view()
    books.readers[0].finishes([12])
    books.it.paused.add(Pause.USER)

    assert (view.low, view.end, view.unfinished[:2], view.delivered) == (12, 20, [12, 14], 20)
    assert (view.paused, books.it.view().low) == (frozenset(), 14)


def test_a_limit_is_reached_by_reading_up_to_it():
    """With a record or without one: the last offsets before it may hold none."""
    partition = Partition(PLACE, [Reader()], 5, limit=10)
    assert not partition.is_at_limit
    partition.reached = 10
    assert partition.is_at_limit
    assert not Partition(PLACE, [Reader()], 5).is_at_limit
