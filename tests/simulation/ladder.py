"""One schedule of a retry ladder: the core with its steps, topics in memory, and crashes; a checker watches each call.

What is promised, and checked here with books that outlive every crash:

- Nothing is lost: each record ends at least once, and no offset is committed before its outcome is durable.
- ``ordered``: no record is called before all earlier ones of its key have ended. A record ends when a call succeeds,
  when it is skipped or superseded, or when its copy is on the error topic. After a crash what was not committed is
  repeated, from any of the topics; such a repeat may come after later records of the key, since the topics are not
  committed together, and is no inversion: the first ends are in order.
- ``unordered``: the same of first calls on the source topic, where one that waits on a retry topic, or is on its way
  there, is out of the way; but one that has been on its way for long blocks its key.
- In batches that are committed as a whole (``is_in_rounds``, as Spark does it) also the last ends are in order, unless
  records that have a copy are left out when they are read again (``knows_copies``): then those before them of the same
  key are repeated, and they are not.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random

from laneway import Message, Topic
from laneway._declare.handler import Buffer, HandlerSpec
from laneway._declare.record import Record
from laneway._declare.retry import Retry
from laneway.errors import CodecError, MessageTooLargeError, ProduceError, Reject, RetryAfter, Skip
from simulation.adapter import CopyIndex, Core
from simulation.parts import Codec, Flaw, Odd
from support.core import FakeClock

__all__ = ["LadderSchedule"]

_KEYS = (b"hot", b"hot", b"hot", b"warm", b"", None)
_PLANS = ("ok",) * 5 + ("raise",) * 4 + ("again", "always", "skip", "reject", "send", "send", "bad", "odd")
_PATIENCE = 0.5  # seconds that a copy may be on its way before its key waits
_STEPS = 20_000  # of a schedule; one that needs more is stuck


class _Entry:
    """What lies on the source topic (step 0) or on a retry topic."""

    __slots__ = ("before", "due", "headers", "key", "offset", "origin", "partition", "raw", "step", "timestamp")

    def __init__(self, place, message, origin=None, before=0):
        self.step, self.partition, self.offset = place
        self.key, self.raw, self.headers, self.timestamp = message
        self.origin = origin or place[1:]
        self.before = before
        """Calls of the record before it came here."""
        self.due = 0.0
        """When it has waited as long as its step says."""

    def __repr__(self):
        return f"{self.origin} on step {self.step} at {self.offset}"

    def record(self, topic):
        size = len(self.key or b"") + len(self.raw or b"")
        place = (topic, self.partition, self.offset, self.timestamp)
        return Record(*place, self.key, self.raw, self.headers, size, self.raw)


class _Letter:
    __slots__ = ("acked", "delivered", "error", "is_end", "landed", "lands", "message", "older", "origin")


class _Sender:
    """Writes late and out of order, answers later still, fails some tries and refuses what is too large."""

    def __init__(self, ladder, step):
        self._ladder, self._step, self._rng = ladder, step, ladder.rng
        self.flying = []

    def send(self, topic, *, key, value, headers, delivered, partition=None, timestamp=None):
        ladder, rng, letter = self._ladder, self._rng, _Letter()
        letter.message = (topic, key, value, list(headers), partition, timestamp)
        letter.origin = None if topic == "out" else ladder.check_copy(self._step, *letter.message)
        name = (self._step, letter.origin)
        letter.older = ladder.life.older.get(name, ())
        # A record whose message can never be delivered has ended with its call, and is parked all the same.
        letter.is_end = all(ladder.life.fate.get(entry) != "handled" for entry in ladder.life.open.get(name, ()))
        letter.error = self._error(letter)
        is_unlucky = isinstance(letter.error, ProduceError) and not isinstance(letter.error, MessageTooLargeError)
        letter.lands = letter.error is None or (is_unlucky and ladder.may_land_unseen and rng.random() < 0.3)
        letter.landed = ladder.clock.now + rng.choice((0.0, 0.001, 0.01, 0.2))
        letter.acked = letter.landed + rng.choice((0.0, 0.0, 0.001, 0.3))
        letter.delivered = delivered
        self.flying.append(letter)

    def _error(self, letter):
        topic, _, value, headers, _, _ = letter.message
        if topic == "out":
            is_huge = value.startswith(b"huge")
        elif topic == "in.sim.error":
            is_huge = self._ladder.refuses_traces and dict(headers)["laneway-error-trace"]
        else:
            is_huge = self._ladder.plan[letter.origin].is_fat
        if is_huge:
            return MessageTooLargeError("planted")
        return ProduceError("planted") if self._rng.random() < self._ladder.failing else None

    def poll(self):
        now, ladder = self._ladder.clock.now, self._ladder
        ladder.land()
        due = [letter for letter in self.flying if letter.acked <= now]
        self.flying = [letter for letter in self.flying if letter.acked > now]
        self._rng.shuffle(due)
        for letter in due:
            if letter.error is None:
                ladder.acked(self._step, letter)
            else:
                ladder.failed_tries += 1
            letter.delivered(letter.error)

    @property
    def next_due(self):
        return min((letter.landed if letter.lands else letter.acked for letter in self.flying), default=None)


class _Plan:
    """How a record's calls end."""

    __slots__ = ("fails", "is_fat", "is_huge", "kind")

    def __init__(self, rng, most):
        self.kind = rng.choice(_PLANS)
        self.fails = rng.randint(1, most) if self.kind in ("raise", "again") else 0
        self.is_fat = rng.random() < 0.05
        """Too large for a retry topic."""
        self.is_huge = rng.random() < 0.1
        """Its message can never be delivered."""


class _Life:
    """What is forgotten in a crash."""

    def __init__(self):
        self.open = {}
        """Step and origin to the entries that are admitted and not finished."""
        self.entries = {}
        self.tries = {}
        self.due = {}
        self.fate = {}
        """Entry to handled, skipped, copied or superseded, once its calls are over."""
        self.target = {}
        """Entry to the step where its copy belongs; 0 is the error topic."""
        self.leaving = {}
        """Origin to when its copy set out for a retry topic, where no record waits for it."""
        self.unacked = {}
        self.older = {}
        """Step and origin to the origins that it supersedes, which end when its copy is on a topic."""
        self.credit = {}
        """Step and origin to how many copies of it are safe and not yet used to finish an entry."""
        self.finished = set()
        self.turns = []
        self.running = set()
        self.mates = {}
        """Entry to the origins that are in the same call and of the same key."""
        self.next = {}


class LadderSchedule:
    """A schedule and the books of its checker."""

    def __init__(self, seed):
        rng = self.rng = Random(seed)
        self.clock = FakeClock()
        self.ahead = self.clock.wall() - self.clock.now
        self.mode = rng.choice(("unordered", "ordered", "ordered"))
        self.hops = rng.randint(1, 3)
        self.attempts = rng.choice((1, 1, 2, 3))
        self.kind = rng.choice(("single",) * 4 + ("batch", "unique"))
        self.order = rng.choice(("key", "key", "key", "partition", "none")) if self.kind == "single" else "key"
        self.backoff = rng.choice((0.0, 0.1))
        self.delays = [rng.choice((0.0, 0.02, 0.3, 1.0)) for _ in range(self.hops)]
        self.lanes = rng.randint(1, 4)
        if self.lanes == 1 and self.kind == "single":
            self.order = "partition"
        self.is_in_rounds = rng.random() < 0.4
        # Not with a unique handler: older records of a key would come behind the copy of a newer one and supersede it.
        self.knows_copies = self.kind != "unique" and rng.random() < 0.5
        self.failing = rng.choice((0.0, 0.1, 0.4))
        # A try that failed and yet was written. Deferred keys that several steps share count what was acknowledged:
        # with such a copy the key would go on too early.
        self.may_land_unseen = self.mode == "unordered" or self.is_in_rounds
        self.refuses_traces = rng.random() < 0.3
        self.crashes = rng.choice((0, 0, 1, 2, 5))
        self.is_without_crash = not self.crashes
        self.route = HandlerSpec(
            "handle",
            Topic("in", Codec()),
            print,
            kind=self.kind,
            lanes=self.lanes,
            order=self.order,
            size=1 if self.kind == "single" else rng.randint(1, 4),
            within=timedelta(seconds=rng.choice((0.0, 0.05))),
            retry=Retry.steps(
                *(f"{delay}s" for delay in self.delays),
                mode=self.mode,
                attempts=self.attempts,
                backoff=f"{self.backoff}s",
                jitter=0,
            ),
            buffer=Buffer(rng.choice((4, 30))),
        )
        steps = [self.route.at_step("sim", step) for step in range(self.hops + 1)]
        self.routes = [replace(route, function=partial(self._handle, route.step)) for route in steps]
        self.topics = [route.topic.name for route in steps]
        self._open_books()
        self._make_source()
        self._start()

    def _open_books(self):
        self.ended, self.deferred = set(), set()
        """Origins that have ended; those that have had a copy on a retry topic."""
        self.ends = []
        """Origins in the order in which calls of them succeeded or their copies came to the error topic."""
        self.calls = {}
        self.committed = {}
        self.parked = []
        """Copies on the error topic."""
        self.failed_tries = 0
        self.log = [[[] for _ in range(2)] for _ in range(self.hops + 1)]

    def _make_source(self):
        rng = self.rng
        self.plan, self.line, self.original = {}, {}, {}
        at = [rng.choice((0, 7)), rng.choice((0, 2**53))]
        partitions = rng.randint(1, 2)
        for _ in range(rng.randint(2, 10)):
            partition = rng.randrange(partitions)
            at[partition] += rng.choice((1, 1, 1, 2))
            plan = _Plan(rng, self.attempts * (self.hops + 1))
            key, raw = rng.choice(_KEYS), rng.choice((None, b"", b"value"))
            if plan.kind in ("bad", "odd"):
                raw = (b"!" if plan.kind == "bad" else b"?") + bytes([rng.randrange(256)])
            if self.kind == "unique" and partition:
                key = None if key is None else key + b"1"  # the newest of a key is known within a partition only
            headers = rng.choice(((), (("h", b"1"), ("h", None), ("i", b"\xff"))))
            entry = _Entry((0, partition, at[partition]), (key, raw, headers, 1_000 + len(self.plan)))
            self.plan[entry.origin], self.original[entry.origin] = plan, entry
            self.log[0][partition].append(entry)
            self.line.setdefault(self._key(entry), []).append(entry.origin)
        self.line.pop(None, None)

    def _key(self, entry):
        """What orders a record; across partitions nothing does."""
        if self.order == "key":
            return None if entry.key is None else (entry.partition, entry.key)
        return entry.partition if self.order == "partition" else None

    # Lives

    def _start(self):
        """Begin at the committed offsets, with nothing in memory but what the topics tell."""
        self.life = _Life()
        self.copied = [self._copies_of(step) for step in range(self.hops + 1)]
        is_ordered = self.mode == "ordered" and self.order != "none"
        self.senders, self.until = [_Sender(self, step) for step in range(self.hops + 1)], {}
        self.core = Core(
            self.routes,
            lanes=self.lanes * 2,
            senders=self.senders,
            clock=self.clock,
            check_finish=self._check_finish,
            # What is left out when it is read again does not wait: it would never leave.
            waiting={step: self.copied[step].fresh(list(self._unfinished(step))) for step in range(1, self.hops + 1)}
            if is_ordered
            else {},
            is_shared=not self.is_in_rounds,
        )
        for step in range(self.hops + 1):
            for partition, log in enumerate(self.log[step]):
                begin = self.committed.get((step, partition), 0)
                self.life.next[step, partition] = index = sum(entry.offset < begin for entry in log)
                if self.is_in_rounds:
                    while index < len(log) and log[index].due <= self.clock.now:
                        index += 1
                    self.until[step, partition] = index
                else:
                    self.until[step, partition] = 10**9

    def _unfinished(self, step):
        for partition, log in enumerate(self.log[step]):
            begin = self.committed.get((step, partition), 0)
            yield from (entry.record(self.topics[step]) for entry in log if entry.offset >= begin)

    def _copies_of(self, step):
        """As the engines do it: copies of what is not committed, on higher steps and on the error topic."""
        copied = CopyIndex("in")
        if self.knows_copies:
            for higher in range(step + 1, self.hops + 1):
                copied.add(list(self._unfinished(higher)))
            copied.add([copy for copy in self.parked if self._is_newly_parked(copy)])
        return copied

    def _is_newly_parked(self, copy):
        topic, partition, offset = copy.header("laneway-read-from").decode().split(":")
        return int(offset) >= self.committed.get((self.topics.index(topic), int(partition)), 0)

    def _crash(self):
        self.crashes -= 1
        for sender in self.senders:
            self.rng.shuffle(sender.flying)
            for letter in sender.flying:
                if letter.lands and self.rng.random() < 0.5:
                    self._write(letter)
        self._start()

    def run(self):
        """Go through the schedule to its end."""
        for _ in range(_STEPS):
            ready = [step for step in range(self.hops + 1) if self.core.is_ready(step)]
            if ready or self.life.turns:
                self._do_something(ready)
            elif not self._go_on():
                break
        else:
            raise Flaw("the schedule does not end")
        self._check_end()

    def _do_something(self, ready):
        rng = self.rng
        draw, step = rng.random(), rng.randint(0, self.hops)
        if draw < 0.35 and ready:
            self._take(rng.choice(ready))
        elif draw < 0.7 and self.life.turns:
            self._settle()
        elif draw < 0.85:
            self._fetch(step)
        elif draw < 0.88 and not self.is_in_rounds:
            self._commit(step)
        elif draw < 0.9 and self.crashes:
            self._crash()
        else:
            self.clock.advance(rng.choice((0.0, 0.001, 0.02)))
            self.core.tick()

    def _go_on(self):
        """Nothing can be done now: go to the next thing that is due; False when there is none."""
        self.land()
        times = [] if self.core.next_wake is None else [self.core.next_wake]
        times += [time for sender in self.senders if (time := sender.next_due) is not None]
        unread = [(step, entry.due) for (step, _), entry in self._unread() if self.core.room(step)]
        times += [due for _, due in unread]
        if not times:
            if not self.core.is_done:
                raise Flaw("records are unfinished and nothing will ever happen")
            return self.is_in_rounds and self._next_round()
        self.clock.now = max(self.clock.now, min(times))
        self.core.tick()
        for step in sorted({step for step, due in unread if due <= self.clock.now}):
            self._fetch(step)
        return True

    def _unread(self):
        """The next entry of each partition that this life is to read."""
        for place, index in self.life.next.items():
            log = self.log[place[0]][place[1]]
            if index < len(log) and index < self.until[place]:
                yield place, log[index]

    def _next_round(self):
        """A round is done: commit it, and begin the next one with what is due by then; False when nothing is left."""
        for step in range(self.hops + 1):
            self._commit(step)
        self.until = dict.fromkeys(self.until, 10**9)
        waiting = [entry.due for _, entry in self._unread()]
        if waiting:
            self.clock.now = max(self.clock.now, min(waiting))
            self._start()
        return bool(waiting)

    def _fetch(self, step):
        records = []
        unread = [
            partition for (own, partition), entry in self._unread() if own == step and entry.due <= self.clock.now
        ]
        room = self.core.room(step) if unread else 0
        self.rng.shuffle(unread)
        for partition in unread:
            log, at = self.log[step][partition], self.life.next[step, partition]
            most = min(len(log), self.until[step, partition], at + self.rng.choice((1, 2, 4)))
            while at < most and len(records) < room and log[at].due <= self.clock.now:
                entry = log[at]
                at += 1
                record = entry.record(self.topics[step])
                if self.copied[step].fresh([record]):
                    records.append(record)
                    self.life.entries[step, partition, entry.offset] = entry
                    self.life.open.setdefault((step, entry.origin), []).append(entry)
                else:
                    self.life.finished.add(entry)
            self.life.next[step, partition] = at
        if records:
            is_last = self.is_in_rounds and all(own != step for (own, _), _ in self._unread())
            self.core.admit(records, step, is_last=is_last)

    def _take(self, step):
        turn = self.core.take(step)
        if turn is None:
            return
        for part in turn.parts:
            if part.key is not None:
                if (step, part.key) in self.life.running:
                    raise Flaw(f"{part.key!r} is in two turns at once")
                self.life.running.add((step, part.key))
                self._check_patience(step, part)
        self.life.turns.append(turn)

    def _commit(self, step):
        for partition, log in enumerate(self.log[step]):
            unfinished = self.core.unfinished(partition, step)
            index = self.life.next[step, partition]
            before = self.committed.get((step, partition), 0)
            offset = unfinished[0] if unfinished else max(before, log[index - 1].offset + 1 if index else 0)
            for entry in log:
                if before <= entry.offset < offset and entry not in self.life.finished:
                    raise Flaw(f"{entry} is not finished and would be committed")
            if offset < before:
                raise Flaw(f"partition {partition} of step {step} would go back to {offset}")
            self.committed[step, partition] = offset

    # Calls

    def _settle(self):
        turn = self.life.turns.pop(self.rng.randrange(len(self.life.turns)))
        step = turn.step
        self._note_mates(step, turn)
        report = (self._single if self.kind == "single" else self._batch)(step, turn)
        if self.kind == "unique":
            self._supersede(step, turn)
        for part in turn.parts:
            self.life.running.discard((step, part.key))
        self.core.settle(turn, report)

    def _single(self, step, turn):
        report = self.core.run(turn)
        for record, error in report.errors:
            if isinstance(error, Flaw):
                raise error
            if isinstance(error, (CodecError, Odd)):
                self._book(step, record)
        return report

    def _batch(self, step, turn):
        for part in turn.parts:
            for record in part.records if self.kind == "batch" else part.records[-1:]:
                if self.plan[self._entry(step, record).origin].kind in ("bad", "odd"):
                    self._book(step, record)
        report = self.core.run(turn)
        for _, error in report.errors:
            if isinstance(error, Flaw):
                raise error
        if self.mode == "ordered" and self.kind == "batch":
            self._keep_in_order([self._entry(step, record) for record in turn.records])
        return report

    def _note_mates(self, step, turn):
        for part in turn.parts:
            entries = [self._entry(step, record) for record in part.records]
            mates = {entry.origin for entry in entries} if self.kind != "single" else ()
            self.life.mates.update(dict.fromkeys(entries, mates))

    def _supersede(self, step, turn):
        """The older records of a key in a call end as the newest one does."""
        for part in turn.parts:
            *older, newest = [self._entry(step, record) for record in part.records]
            fate = self.life.fate.get(newest)
            for entry in older if fate else ():
                self.life.fate[entry] = "superseded"
                self.life.unacked[entry] = self.life.unacked.get(newest, set())
                self.life.target[entry] = newest
                if fate == "copied":
                    self.life.older.setdefault((step, newest.origin), set()).add(entry.origin)
                else:
                    self.ended.add(entry.origin)

    def _entry(self, step, record):
        return self.life.entries[step, record.partition, record.offset]

    def _begin(self, step, record):
        """A call begins: is it this record's turn, and is it as it was?"""
        life, entry = self.life, self._entry(step, record)
        if entry in life.fate:
            raise Flaw(f"{entry} is called again after its end")
        if self.clock.now < life.due.get(entry, 0):
            raise Flaw(f"{entry} is called before its pause is over")
        tries = life.tries[entry] = life.tries.get(entry, 0) + 1
        if record.attempt != entry.before + tries:
            raise Flaw(f"{entry} says attempt {record.attempt}, it is {entry.before + tries}")
        original = self.original[entry.origin]
        if (record.origin or ("in", *original.origin)) != ("in", *entry.origin):
            raise Flaw(f"{entry} says it came from {record.origin}")
        if (record.key, record.raw, record.timestamp) != (original.key, original.raw, original.timestamp):
            raise Flaw(f"{entry} has another key, value or time")
        self._check_order(entry)
        self.calls[entry.origin] = self.calls.get(entry.origin, 0) + 1
        return entry

    def _check_order(self, entry):
        key = self._key(entry)
        if key is None or (self.mode == "unordered" and (entry.step or entry.origin in self.calls)):
            return
        line, mates = self.line[key], self.life.mates[entry]
        for earlier in line[: line.index(entry.origin)]:
            if earlier in self.ended or earlier in mates:
                continue
            if self.mode == "ordered" or (earlier not in self.deferred and earlier not in self.life.leaving):
                raise Flaw(f"{entry} is called before {earlier} has ended")

    def _check_patience(self, step, part):
        """A copy that cannot be written blocks its key."""
        for record in part.records if not step else ():
            entry = self._entry(step, record)
            for earlier in self.line.get(self._key(entry), ()):
                since = self.life.leaving.get(earlier, self.clock.now)
                is_safe = earlier in self.deferred or earlier in self.ended
                if not is_safe and self.clock.now >= since + _PATIENCE:
                    raise Flaw(f"{entry} is begun, and the copy of {earlier} is late")

    def _book(self, step, record):
        """What the handler or the codec is going to do with a record, booked before it does so."""
        entry = self._begin(step, record)
        plan = self.plan[entry.origin]
        kind = plan.kind
        if kind in ("odd", "always") or (kind in ("raise", "again") and self.calls[entry.origin] <= plan.fails):
            self._fail(entry, 0.25 if kind == "again" else None)
            return kind
        if kind in ("bad", "reject"):
            self._copy(entry, 0)
        else:
            self._end(entry, "skipped" if kind == "skip" else "handled")
        return kind if kind in ("reject", "skip", "send") else "ok"

    def _fail(self, entry, pause=None):
        tries = self.life.tries[entry]
        if tries >= self.attempts and self._leaves(entry, entry.step + 1 + tries - self.attempts, pause):
            return
        if tries < self.attempts or pause is not None:
            pause = self.backoff * 2 ** (tries - 1) if pause is None else pause
            self.life.due[entry] = self.clock.now + pause - 1e-9

    def _keep_in_order(self, entries):
        """Of the members of a batch no later one of a key goes higher than an earlier one, or past one that waits."""
        life, waits, highest = self.life, {}, {}
        keyed = [entry for entry in entries if self._key(entry) is not None]
        failed = [entry for entry in keyed if life.fate.get(entry) is None or life.target.get(entry)]
        for entry in failed:
            key = self._key(entry)
            if life.fate.get(entry) is None:
                waits[key] = life.due[entry]
            elif key in waits:
                target = life.target.pop(entry)
                delay = self.delays[target - 1] if self.plan[entry.origin].kind == "again" else 0
                del life.fate[entry]
                life.due[entry] = max(waits[key], self.clock.now + delay - 1e-9)
        for entry in reversed(failed):
            if life.target.get(entry):
                highest[self._key(entry)] = max(highest.get(self._key(entry), 0), life.target[entry])
                life.target[entry] = highest[self._key(entry)]

    def _leaves(self, entry, following, asked):
        """Whether a record without tries left goes on to a step that waits as long as it asks, or is parked."""
        if following > self.hops:
            self._copy(entry, 0)
            return True
        fitting = [step for step in range(following, self.hops + 1) if self.delays[step - 1] >= (asked or 0)]
        if fitting:
            self._copy(entry, fitting[0])
        return bool(fitting)

    def _copy(self, entry, target):
        self.life.fate[entry] = "copied"
        self.life.target[entry] = target
        if target and not entry.step and self.mode == "unordered" and self.kind == "single":
            self.life.leaving[entry.origin] = self.clock.now

    def _end(self, entry, fate):
        self.life.fate[entry] = fate
        self.ended.add(entry.origin)
        self.ends.append(entry.origin)

    def _handle(self, step, given):
        if self.kind != "single":
            return self._handle_batch(step, given)
        what = self._book(step, given)
        if what == "send":
            return self._message([self._entry(step, given)])
        self._raise(what)
        return None

    @staticmethod
    def _raise(what):
        if what == "skip":
            raise Skip
        if what == "reject":
            raise Reject
        if what == "again":
            raise RetryAfter(0.25)
        if what in ("raise", "always"):
            raise ValueError("planted")

    def _handle_batch(self, step, batch):
        """Mark each member after its plan; or fail, if one fails, with all of them."""
        entries = [self._entry(step, record) for record in batch]
        plans = [self.plan[entry.origin] for entry in entries]
        if any(plan.kind in ("raise", "always") for plan in plans) and self.rng.random() < 0.4:
            for record in batch:
                self._fail(self._begin(step, record))
            raise ValueError("planted")
        said = [self._book(step, record) for record in batch]
        for record, what in zip(batch, said, strict=True):
            if what == "skip":
                batch.skip(record)
            elif what == "reject":
                batch.reject(record)
            elif what in ("raise", "always", "again"):
                batch.retry(record, after="250ms" if what == "again" else None)
        handled = [entry for entry, what in zip(entries, said, strict=True) if what in ("ok", "send")]
        return self._message(handled) if "send" in said and handled else None

    def _message(self, entries):
        """One message for all of these."""
        is_huge = any(self.plan[entry.origin].is_huge for entry in entries)
        letters = {object()}
        for entry in entries:
            self.life.unacked[entry] = letters
        self.life.unacked[id(letters)] = letters
        return Message(Topic("out"), b"%s:%d" % (b"huge" if is_huge else b"fine", id(letters)))

    # Copies

    def check_copy(self, step, topic, key, value, headers, partition, timestamp):
        """A copy is sent: is it the right one? Returns the origin of its record."""
        names = dict(headers)
        origin = (int(names["laneway-origin-partition"]), int(names["laneway-origin-offset"]))
        original, is_error = self.original[origin], topic == "in.sim.error"
        if (key, value) != (original.key, original.raw):
            raise Flaw(f"the copy of {origin} has another key or value")
        if int(names["laneway-origin-timestamp"]) != original.timestamp:
            raise Flaw(f"the copy of {origin} has another time")
        if list(original.headers) != [header for header in headers if not header[0].startswith("laneway-")]:
            raise Flaw(f"the copy of {origin} has other headers")
        target = 0 if is_error else self.topics.index(topic)
        entries = [entry for entry in self.life.open.get((step, origin), ()) if self._may_go(entry, target, names)]
        if not entries:
            raise Flaw(f"there is no reason for a copy of {origin} from step {step} to {target}")
        if is_error:
            if (partition, timestamp) != (None, original.timestamp):
                raise Flaw(f"the parked copy of {origin} has another partition or time")
            return origin
        due = round(timestamp + self.delays[target - 1] * 1000)
        told = (int(names["laneway-step"]), int(names["laneway-due"]), partition)
        if told != (target, due, original.partition) or timestamp > self.clock.wall() * 1000:
            raise Flaw(f"the copy of {origin} says {told}, right is {(target, due, original.partition)}")
        if int(names["laneway-attempts"]) not in {entry.before + self.life.tries.get(entry, 0) for entry in entries}:
            raise Flaw(f"the copy of {origin} says {names['laneway-attempts']} calls")
        return origin

    def _may_go(self, entry, target, names):
        """Whether an entry has a reason to be copied to a step, or to the error topic (0)."""
        life, plan = self.life, self.plan[entry.origin]
        fate = life.fate.get(entry)
        if fate == "copied":
            return target == life.target[entry] or (not target and plan.is_fat)
        if fate == "handled":
            return not target and bool(life.unacked.get(entry))
        is_follower = self.mode == "ordered" and fate is None and self._key(entry) is not None
        return is_follower and (
            plan.is_fat if not target else target > entry.step and "laneway-error-type" not in names
        )

    def land(self):
        """Write what has reached the topics by now."""
        due = [(step, letter) for step, sender in enumerate(self.senders) for letter in sender.flying]
        due = [pair for pair in due if pair[1].lands and pair[1].landed <= self.clock.now]
        self.rng.shuffle(due)
        for _, letter in sorted(due, key=lambda pair: pair[1].landed):
            self._write(letter)

    def _write(self, letter):
        letter.lands = False
        topic, key, value, headers, partition, timestamp = letter.message
        origin = letter.origin
        self.ended.update(letter.older)
        if topic == "out":
            return
        if topic == "in.sim.error":
            self.parked.append(Record(topic, 0, 0, timestamp, key, value, headers, 0, None))
            self.ended.add(origin)
            self.ends += [origin] * letter.is_end
            return
        step = self.topics.index(topic)
        log = self.log[step][partition]
        offset = (log[-1].offset if log else -1) + self.rng.choice((1, 1, 1, 2))
        before = int(dict(headers)["laneway-attempts"])
        entry = _Entry((step, partition, offset), (key, value, headers, timestamp), origin, before)
        entry.due = timestamp / 1000 + self.delays[step - 1] - self.ahead + 1e-6
        log.append(entry)
        self.deferred.add(origin)

    def acked(self, step, letter):
        """The app learns that a message is safe."""
        if letter.origin is not None:
            name = (step, letter.origin)
            self.life.credit[name] = self.life.credit.get(name, 0) + 1
            return
        letters = self.life.unacked[int(letter.message[2].split(b":")[1])]
        letters.clear()

    # Ends

    def _check_finish(self, step, *place):
        life = self.life
        entry = life.entries[step, *place]
        if entry in life.finished:
            raise Flaw(f"{entry} is finished twice")
        fate, name = life.fate.get(entry), (step, entry.origin)
        is_message_safe = not life.unacked.get(entry)
        if fate == "superseded":
            newest = life.target[entry]
            is_safe = newest in life.finished
        elif fate in ("handled", "skipped") and is_message_safe:
            is_safe = True
        else:
            is_safe = life.credit.get(name, 0) > 0
            life.credit[name] = life.credit.get(name, 0) - 1
        if not is_safe:
            raise Flaw(f"{entry} is finished, but its outcome is not durable")
        life.finished.add(entry)
        life.open[name].remove(entry)

    def _check_end(self):
        for step in range(self.hops + 1):
            self._commit(step)
            for partition, log in enumerate(self.log[step]):
                if log and self.committed[step, partition] <= log[-1].offset:
                    raise Flaw(f"{log[-1]} is never committed")
        tallies = self.core.close()
        lost = self.plan.keys() - self.ended
        if lost:
            raise Flaw(f"{sorted(lost)} never ended")
        if self.core.waiting_keys:
            raise Flaw("keys wait on retry topics for records that are not there")
        if self.mode == "ordered" and self.is_in_rounds and self.kind != "batch" and not self.knows_copies:
            self._check_last_ends()
        if self.is_without_crash:
            self._check_tallies(tallies)

    def _check_last_ends(self):
        last = {origin: number for number, origin in enumerate(self.ends)}
        for line in self.line.values():
            # What is too large for a retry topic is parked instead of going there.
            usual = [origin for origin in line if not self.plan[origin].is_fat]
            numbers = [last[origin] for origin in usual if origin in last]
            if self.kind == "unique":
                numbers = [max(numbers, default=0), *numbers[-1:]]  # all that counts is that the newest came last
            if numbers != sorted(numbers):
                raise Flaw(f"the last ends of {line} are in another order")

    def _check_tallies(self, tallies):
        if self.is_in_rounds:
            return
        total = {name: sum(getattr(tally, name) for tally in tallies) for name in ("read", "deferred", "parked")}
        copies = sum(len(log) for logs in self.log[1:] for log in logs)
        expected = {"read": len(self.plan) + copies, "deferred": copies, "parked": len(self.parked)}
        if not self.may_land_unseen and total != expected:
            raise Flaw(f"the tallies say {total}, it was {expected}")
        if sum(tally.undelivered for tally in tallies) != self.failed_tries:
            raise Flaw("failed tries are miscounted")
        if any(tally.invalid_headers or tally.early_due for tally in tallies):
            raise Flaw("a copy that laneway wrote has invalid headers or is early due")
