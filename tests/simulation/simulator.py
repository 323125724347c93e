"""One schedule: the core, a source, lanes and a sender that behave at random, and a checker that watches each step.

Everything a schedule does follows from its seed. The checker keeps its own books and never asks the code under test
what ought to be true.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from datetime import timedelta
from random import Random

from laneway import Batch, Message, Topic
from laneway._declare.handler import Buffer, HandlerSpec
from laneway._declare.record import Record
from laneway._declare.retry import Retry
from laneway.errors import CodecError, MessageTooLargeError, ProduceError, Reject, RetryAfter, Skip
from simulation.adapter import Core
from simulation.ladder import LadderSchedule
from simulation.parts import Codec, Flaw, Odd
from support.core import FakeClock

__all__ = ["LADDERS", "simulate"]

_KEYS = (b"hot", b"hot", b"hot", b"warm", b"warm", b"", b"\xff\x00", b"a", b"b", b"c", b"d", b"e", None, None)
_OUTCOMES = ("ok",) * 9 + ("skip", "reject", "raise", "raise", "again", "send", "send", "send", "bad", "odd")
_STEPS = 6_000  # of a schedule; one that needs more is stuck
_MOST_ASKED = 10  # retries that a record has for the asking from a policy without any
LADDERS = 8  # every so many schedules one has retry topics and crashes


class _Sender:
    """Acknowledges late and out of order, fails some tries, and refuses what is too large."""

    def __init__(self, simulation):
        self._simulation = simulation
        self._rng = simulation.rng
        self._failing = self._rng.choice((0.0, 0.1, 0.5))
        self._refuses_traces = self._rng.random() < 0.3
        self.waiting = []
        self.failed = 0

    def send(self, topic, *, key, value, headers, delivered, partition=None, timestamp=None):
        due = self._simulation.clock.now + self._rng.choice((0.0, 0.001, 0.01, 0.3))
        self.waiting.append((due, topic, key, value, headers, timestamp, delivered))

    def poll(self):
        now = self._simulation.clock.now
        due = [letter for letter in self.waiting if letter[0] <= now]
        if not due:
            return
        self.waiting = [letter for letter in self.waiting if letter[0] > now]
        self._rng.shuffle(due)
        for letter in due:
            error = self._answer(letter)
            if error is None:
                self._simulation.acked(*letter[1:6])
            else:
                self.failed += 1
            letter[6](error)

    def _answer(self, letter):
        _, topic, _, value, headers, _, _ = letter
        if topic == "out":
            if value.startswith(b"huge"):
                return MessageTooLargeError("planted")
        elif self._refuses_traces and dict(headers)["laneway-error-trace"]:
            return MessageTooLargeError("planted")
        return ProduceError("planted") if self._rng.random() < self._failing else None

    @property
    def next_due(self):
        return min((letter[0] for letter in self.waiting), default=None)


class Simulation:
    """A schedule and the books of its checker."""

    def __init__(self, seed):
        rng = self.rng = Random(seed)
        self.clock = FakeClock()
        self.is_batch = rng.random() < 0.3
        self.order = "key" if self.is_batch else rng.choice(("key", "key", "key", "partition", "none"))
        self.attempts = rng.choice((1, 1, 2, 3))
        self.backoff = rng.choice((0.0, 0.01, 0.4))
        self.most_records = rng.choice((4, 8, 30))
        self.most_size = rng.choice((40, 10_000))
        self.lanes = rng.randint(2, 6)
        self.strict = rng.choice((1, 2)) if not self.is_batch and rng.random() < 0.25 else None
        route = HandlerSpec(
            "handle",
            Topic("in", Codec()),
            self._handle_batch if self.is_batch else self._handle,
            kind="batch" if self.is_batch else "single",
            lanes=self.lanes,
            order=self.order,
            size=rng.randint(1, 5) if self.is_batch else 1,
            within=timedelta(seconds=rng.choice((0.0, 0.05, 0.5))),
            retry=Retry(self.attempts, f"{self.backoff}s", "0.5s", jitter=0),
            buffer=Buffer(max(5, self.most_records), self.most_size),
        )
        self.most_records = route.buffer.records
        self.out_topic = Topic("out")
        self.sender = _Sender(self)
        if self.is_batch and rng.random() < 0.3:
            route = replace(route, function=self._handle_batch_async)
        self.core = Core(
            [route],
            lanes=self.lanes,
            senders=[self.sender],
            clock=self.clock,
            check_finish=self._check_finish,
            per_partition=self.strict,
        )
        self.is_sliced = rng.random() < 0.5
        self._make_source()
        self._open_books()

    def _make_source(self):
        rng = self.rng
        at = [rng.choice((0, 7, 2**53 + rng.randint(0, 3))) for _ in range(rng.randint(1, 3))]
        self.source, self.plan = [], {}
        for _ in range(rng.randint(1, 40)):
            partition = rng.randrange(len(at))
            offset = at[partition]
            at[partition] = offset + rng.choice((1, 1, 1, 2, 50))
            plan = rng.choice(_OUTCOMES)
            key, raw = rng.choice(_KEYS), rng.choice((None, b"", b"v", b"value"))
            headers = rng.choice(((), (("h", b"1"), ("h", None), ("i", b"\xff"))))
            if plan in ("bad", "odd"):
                raw = (b"!" if plan == "bad" else b"?") + bytes([rng.randrange(256)])
            self.plan[partition, offset] = (plan, rng.randint(1, 3), rng.randint(1, 3), rng.random() < 0.05)
            size = len(key or b"") + len(raw or b"")
            self.source.append(Record("in", partition, offset, 1, key, raw, headers, size, None))
        self.source.reverse()

    def _open_books(self):
        self.records = {}
        self.seen = {}
        """Partition to its admitted offsets."""
        self.low = {}
        """Partition to how many of them are durable without a hole."""
        self.committed = {}
        self.fate = {}
        """Place to handled, skipped or parked, once the handler's part is over."""
        self.durable = set()
        self.finished = set()
        self.unacked = {}
        """Place to the messages that still have to be acknowledged."""
        self.orphans = set()
        """Messages not yet acknowledged of batches whose members were all marked; no record waits for them."""
        self.letters = 0
        self.copies = {}
        self.copy_awaited = set()
        """Keys that wait for the copy of a failed record."""
        self.tries = {}
        self.due = {}
        self.line = {}
        """Key to the places admitted, in order; the first is the one to be called next."""
        self.running = set()
        self.turns = []
        self.held = 0
        self.produced = self.retried = 0

    def run(self):
        """Go through the schedule to its end."""
        rng, core = self.rng, self.core
        for _ in range(_STEPS):
            draw = rng.random()
            if draw < 0.2 and self.source:
                self._fetch()
            elif draw < 0.25 or (draw < 0.55 and core.is_ready()):
                self._take()
                continue  # it ends nothing
            elif draw < 0.8 and self.turns:
                self._settle()
            else:
                self.clock.advance(rng.choice((0.0, 0.001, 0.02)))
                core.tick()
            self._check_commits()
            if not self.turns and not core.is_ready():
                if not self.source and core.is_done:
                    break
                self._let_time_pass()
        else:
            raise Flaw("the schedule does not end")
        self._check_end()

    def _let_time_pass(self):
        """Nothing can be done now: go to the next thing that is due."""
        if self.source and self.core.room():
            return
        times = [time for time in (self.core.next_wake, self.sender.next_due) if time is not None]
        if not times:
            raise Flaw("records are unfinished and nothing will ever happen")
        self.clock.now = max(self.clock.now, min(times))
        self.core.tick()

    def _fetch(self):
        room = self.core.room()
        if not room:
            return
        if self.held >= self.most_size:
            raise Flaw("room although the bytes in memory have reached the bound")
        records = []
        for _ in range(min(self.rng.randint(1, 8), room, len(self.source))):
            record = self.source.pop()
            record.value = record.raw
            place = (record.partition, record.offset)
            records.append(record)
            self.records[place] = record
            self.seen.setdefault(record.partition, []).append(record.offset)
            self.held += record.size
            if (key := self._key(record)) is not None:
                self.line.setdefault(key, []).append(place)
        self.core.admit(records, is_last=not self.source)
        if len(self.records) - len(self.finished) > self.most_records:
            raise Flaw("more records in memory than the buffer allows")

    def _key(self, record):
        if self.order == "key":
            return record.key
        return record.partition if self.order == "partition" else None

    def _take(self):
        may = self.core.is_ready() and len(self.turns) < self.lanes
        turn = self.core.take()
        if turn is None:
            if may and not self.is_batch and not self.strict:
                raise Flaw("a lane is free and a record is ready, yet there is no turn")
            return
        if not may:
            raise Flaw("a turn without a free lane or a ready record")
        for key, _, _ in turn.parts:
            if key is None:
                continue
            if key in self.running:
                raise Flaw(f"{key!r} is in two turns at once")
            self.running.add(key)
        if self.strict and sum(other.parts[0].lane == turn.parts[0].lane for other in self.turns) >= self.strict:
            raise Flaw("a partition uses more lanes than it has")
        self.turns.append(turn)

    def _settle(self):
        turn = self.turns.pop(self.rng.randrange(len(self.turns)))
        if self.is_batch:
            report = self._batch(turn)
        elif self.is_sliced:
            report = self.core.run_partly(
                turn, stops=lambda: self.rng.random() < 0.3, seconds=lambda: self.rng.choice((0.0, 0.0001, 0.01))
            )
        else:
            report = self.core.run(turn)
        for record, error in report.errors:
            if isinstance(error, Flaw):
                raise error
            if isinstance(error, (CodecError, Odd)) and not self.is_batch:
                self._book_call(record)
        for part in turn.parts:
            self.running.discard(part.key)
        self.core.settle(turn, report)

    def _begin(self, record):
        """A call of the handler begins: is it this record's turn?"""
        place = (record.partition, record.offset)
        if place in self.fate:
            raise Flaw(f"{place} is called again after its end")
        if self.clock.now < self.due.get(place, 0):
            raise Flaw(f"{place} is called before its pause is over")
        key = self._key(record)
        if key is not None:
            if key in self.copy_awaited:
                raise Flaw(f"{place} is called while the copy of an earlier record of its key is not safe")
            line = self.line[key]
            if not self.is_batch and line[0] != place:
                raise Flaw(f"{place} is called before {line[0]}")
        tries = self.tries[place] = self.tries.get(place, 0) + 1
        if record.attempt != tries:
            raise Flaw(f"{place} says attempt {record.attempt}, it is {tries}")

    def _book_call(self, record):
        """What the handler or the codec is going to do with a single record, booked before it does so."""
        self._begin(record)
        place = (record.partition, record.offset)
        plan, _, messages, is_huge = self.plan[place]
        if self._fails(record):
            self._fail(record, 0.25 if plan == "again" else None)
            return plan
        if plan in ("bad", "reject"):
            self._end(record, "parked")
        elif plan == "skip":
            self._end(record, "skipped")
        elif plan == "send":
            self._end(record, "handled", [(place, number, is_huge and number == 0) for number in range(messages)])
        else:
            self._end(record, "handled")
        return plan if plan in ("reject", "skip", "send") else "ok"

    def _fails(self, record):
        """Whether this try of a record is one that may be repeated."""
        place = (record.partition, record.offset)
        plan, succeeds_at, _, _ = self.plan[place]
        return plan == "odd" or (plan in ("raise", "again") and self.tries[place] < succeeds_at)

    def _fail(self, record, pause=None, *, is_asked_for=False):
        """A try failed: the record is parked after its last one, else called again after a pause."""
        place = (record.partition, record.offset)
        tries = self.tries[place]
        asks = (is_asked_for or pause is not None) and self.attempts == 1 and tries <= _MOST_ASKED
        if tries >= self.attempts and not asks:
            self._end(record, "parked")
            return
        self.retried += 1
        pause = min(self.backoff * 2 ** (tries - 1), 0.5) if pause is None else pause
        self.due[place] = self.clock.now + pause - 1e-9

    def _end(self, record, fate, messages=()):
        place = (record.partition, record.offset)
        self.fate[place] = fate
        key = self._key(record)
        if key is not None:
            self.line[key].remove(place)
        if fate == "parked":
            if key is not None:
                self.copy_awaited.add(key)
            return
        self.held -= record.size
        if messages:
            self.unacked[place] = set(messages)
        else:
            self.durable.add(place)

    def _handle(self, record):
        return self._act(self._book_call(record), record)

    def _act(self, plan, record):
        if plan == "skip":
            raise Skip
        if plan == "reject":
            raise Reject
        if plan == "raise":
            raise ValueError("planted")
        if plan == "again":
            raise RetryAfter(0.25)
        if plan != "send":
            return None
        place = (record.partition, record.offset)
        return self._messages(place, sorted(self.unacked[place]))

    def _messages(self, place, letters):
        text = "%s:%d:%d:%d"
        return [
            Message(self.out_topic, (text % ("huge" if huge else "fine", *place, number)).encode(), key=b"%d" % number)
            for _, number, huge in letters
        ]

    def _batch(self, turn):
        tried = turn.records
        self._check_batch_order(tried)
        self._decodable, self._is_called = [], False
        for record in tried:
            self._begin(record)
        for record in tried:
            plan = self.plan[record.partition, record.offset][0]
            if plan == "bad":
                self._end(record, "parked")
            elif plan == "odd":
                self._fail(record)
            else:
                self._decodable.append(record)
        report = self.core.run(turn)
        for _, error in report.errors:
            if isinstance(error, Flaw):
                raise error
        if self._is_called != bool(self._decodable):
            raise Flaw("a batch handler is called when there is something to call it with")
        return report

    def _check_batch_order(self, records):
        """A key's members are those that are next in its line. A retried one has stayed at the head of it."""
        by_key = {}
        for record in records:
            if (key := self._key(record)) is not None:
                by_key.setdefault(key, []).append((record.partition, record.offset))
        for key, places in by_key.items():
            if self.line[key][: len(places)] != places:
                raise Flaw(f"a batch has {places} of {key!r}, next are {self.line[key][: len(places)]}")

    async def _handle_batch_async(self, batch):
        return self._handle_batch(batch)

    def _handle_batch(self, batch):
        """Raise for all, mark single members, or both."""
        assert isinstance(batch, Batch)
        self._is_called = True
        records = list(batch)
        if records != self._decodable:
            raise Flaw("a batch has other records than those that were taken and can be decoded")
        manner = self.rng.choice(("raise", "raise", "mark", "mark", "mark", "mark", "mark and raise"))
        if manner == "raise":
            return self._raise_batch(records)
        marked = self._mark(batch, is_meant=manner == "mark")
        if manner == "mark":
            return self._succeed_batch([record for record in records if record not in marked], records)
        return self._spoil(batch, records)

    def _raise_batch(self, records):
        """The first member with a bad plan decides for all of them."""
        plans = [self.plan[record.partition, record.offset][0] for record in records]
        for record, plan in zip(records, plans, strict=True):
            if plan == "reject" and record.offset % 2:
                for other in records:
                    self._end(other, "parked")
                raise Reject
            if self._fails(record):
                self._fail_batch(records, *((RetryAfter(0.25), 0.25) if plan == "again" else (ValueError("planted"),)))
        if all(plan == "skip" for plan in plans):
            self._skip_batch(records)
        return self._succeed_batch(records, records)

    def _mark(self, batch, *, is_meant):
        """Mark members after their plans; some are marked twice, and the last mark counts."""
        marked = set()
        for record in batch:
            plan = self.plan[record.partition, record.offset][0]
            fails = self._fails(record)
            if plan not in ("reject", "skip") and not fails:
                continue
            marked.add(record)
            if self.rng.random() < 0.2:
                self.rng.choice((batch.reject, batch.retry, batch.skip))(record)
            if plan == "reject":
                batch.reject(record, "planted")
            elif plan == "skip":
                batch.skip(record)
            else:
                batch.retry(record, "planted", after="250ms" if plan == "again" else None)
            if not is_meant:
                continue
            if fails:
                self._fail(record, 0.25 if plan == "again" else None, is_asked_for=True)
            else:
                self._end(record, "parked" if plan == "reject" else "skipped")
        return marked

    def _spoil(self, batch, records):
        """Whatever was marked, what is raised or answered in the end counts for all."""
        how = self.rng.choice(("raise", "skip", "answer", "mark a stranger"))
        if how == "skip":
            self._skip_batch(records)
        if how == "raise":
            self._fail_batch(records, ValueError("planted"))
        self._book_failed_batch(records)
        if how == "answer":
            return "nonsense"
        batch.skip(copy(records[0]))
        return None

    def _skip_batch(self, records):
        for record in records:
            self._end(record, "skipped")
        raise Skip

    def _fail_batch(self, records, error, pause=None):
        self._book_failed_batch(records, pause)
        raise error

    def _book_failed_batch(self, records, pause=None):
        for record in records:
            self._fail(record, pause)

    def _succeed_batch(self, records, members):
        """These are handled, with the messages of all members that planned some."""
        plans = [self.plan[record.partition, record.offset] for record in members]
        senders = [plan for plan in plans if plan[0] == "send"]
        if not records:
            return self._orphans(plans)
        if not senders:
            for record in records:
                self._end(record, "handled")
            return None
        first = (records[0].partition, records[0].offset)
        letters = {(first, number, plan[3]) for number, plan in enumerate(senders)}
        for record in records:
            self._end(record, "handled", letters)
        shared = self.unacked[first]
        for record in records:
            self.unacked[record.partition, record.offset] = shared
        return self._messages(first, sorted(letters))

    def _orphans(self, plans):
        """Messages, some of which cannot be delivered, though every member is marked."""
        texts = []
        for _, _, _, is_huge in plans[: self.rng.randint(0, 2)]:
            self.letters += 1
            texts.append(b"%s:0:0:%d" % (b"huge-orphan" if is_huge else b"orphan", self.letters))
        self.orphans.update(text for text in texts if text.startswith(b"orphan"))
        return [Message(self.out_topic, text) for text in texts] or None

    def acked(self, topic, key, value, headers, timestamp):
        """A message is on all in-sync replicas."""
        self.produced += 1
        if topic == "out":
            self._acked_message(value)
            return
        names = dict(headers)
        place = (int(names["laneway-origin-partition"]), int(names["laneway-origin-offset"]))
        record = self.records[place]
        if (key, value, timestamp) != (record.key, record.raw, record.timestamp):
            raise Flaw(f"the copy of {place} has another key, value or time")
        if list(record.headers) != [header for header in headers if not header[0].startswith("laneway-")]:
            raise Flaw(f"the copy of {place} has other headers")
        if self.fate.get(place) == "handled" and place in self.unacked:
            # One of its messages can never be delivered.
            if not any(huge for _, _, huge in self.unacked[place]):
                raise Flaw(f"{place} is parked although its messages can be delivered")
            self.fate[place] = "parked"
        elif self.fate.get(place) == "parked":
            self.held -= record.size
            waits = self._key(record)
            others = {
                other
                for other, fate in self.fate.items()
                if fate == "parked" and other not in self.copies and other != place
            }
            if not any(self._key(self.records[other]) == waits for other in others):
                self.copy_awaited.discard(waits)
        else:
            raise Flaw(f"{place} has a copy on the error topic, its fate is {self.fate.get(place)}")
        self.copies[place] = self.copies.get(place, 0) + 1
        self.durable.add(place)

    def _acked_message(self, value):
        if value.startswith(b"orphan"):
            self.orphans.remove(value)
            return
        kind, partition, offset, number = value.decode().split(":")
        place = (int(partition), int(offset))
        letters = self.unacked[place]
        letters.discard((place, int(number), kind == "huge"))
        if not letters:
            for other, others in self.unacked.items():
                if others is letters:
                    self.durable.add(other)

    def _check_finish(self, _step, *place):
        if place in self.finished:
            raise Flaw(f"{place} is finished twice")
        if place not in self.durable:
            raise Flaw(f"{place} is finished, but its outcome is not durable")
        self.finished.add(place)

    def _check_commits(self):
        durable = self.durable
        for partition, offsets in self.seen.items():
            low = self.low.get(partition, 0)
            while low < len(offsets) and (partition, offsets[low]) in durable:
                low += 1
            self.low[partition] = low
            bound = offsets[low] if low < len(offsets) else offsets[-1] + 1
            committable = self.core.committable(partition)
            if committable > bound:
                raise Flaw(f"partition {partition}: {committable} could be committed, {bound} is unfinished")
            if committable < self.committed.get(partition, 0):
                raise Flaw(f"partition {partition}: the committable offset went back to {committable}")
            self.committed[partition] = committable

    def _check_end(self):
        core, fates = self.core, list(self.fate.values())
        if not self.finished == set(self.records) == set(self.plan):
            raise Flaw(f"never finished: {sorted(set(self.plan) - self.finished)}")
        for place, fate in self.fate.items():
            if self.copies.get(place, 0) != (fate == "parked"):
                raise Flaw(f"{place} is {fate} and has {self.copies.get(place, 0)} copies on the error topic")
        if self.orphans:
            raise Flaw(f"messages were never sent: {self.orphans}")
        if not core.is_empty:
            raise Flaw("something is left in memory")
        [tally] = core.close()
        expected = (len(fates), *map(fates.count, ("handled", "skipped", "parked")), self.retried, self.produced)
        actual = (tally.read, tally.handled, tally.skipped, tally.parked, tally.retried, tally.produced)
        if expected != actual:
            raise Flaw(f"the tally says {actual}, it was {expected}")
        if (len(fates), self.sender.failed) != (sum(tally.latency.values()), tally.undelivered):
            raise Flaw("latencies or failed tries are miscounted")
        for partition, offsets in self.seen.items():
            if core.committable(partition) != offsets[-1] + 1:
                raise Flaw(f"partition {partition} is not committable to its end")


def simulate(seed: int) -> None:
    """Run the schedule of a seed.

    Raises:
        AssertionError: when a promise was broken; the text says which, and how to run the schedule again.
    """
    try:
        (LadderSchedule if seed % LADDERS == 1 else Simulation)(seed).run()
    except Exception as error:
        raise AssertionError(
            f"seed {seed}: {type(error).__name__}: {error}\n"
            f"run again: PYTHONPATH=tests python -c 'from simulation.simulator import simulate; simulate({seed})'"
        ) from error
