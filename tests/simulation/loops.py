"""One schedule of whole loops: a group of members on a fake Kafka, with rebalances, crashes and writes that fail.

Everything a schedule does follows from its seed. The checker keeps its own books: what the handler has done, what was
written, and what each commit says is finished.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack
from random import Random

from laneway import App, Buffer, Reject, Retry, Topic
from laneway.errors import LanewayError
from laneway.testing import FakeKafka, running
from simulation.parts import Flaw
from support.doors import decode_finished

__all__ = ["simulate_loops"]

SOURCE, OUT = Topic("orders"), Topic("out")
_KEYS = (b"hot", b"hot", b"hot", b"warm", b"warm", b"a", b"b", b"c", b"d", None)
_ANSWERS = ("ok",) * 8 + ("send", "send", "raise", "raise", "reject", "reject", "reject")
_SECONDS = (0.0, 0.0, 0.01, 0.05, 0.3, 2.0)
_RETRIES = (
    Retry(attempts=2, backoff="200ms", jitter=0),
    Retry(attempts=3, backoff="1s"),
    Retry.steps("500ms", mode="unordered"),
    Retry.steps("500ms", mode="ordered"),
    Retry.steps("300ms", "2s", mode="ordered"),
)


class _Offsets(dict):
    """What a group has committed. Each commit is checked when it arrives."""

    def __init__(self, check):
        super().__init__()
        self._check = check

    def __ior__(self, offsets):
        for place, said in offsets.items():
            self._check(place, said, self.get(place, (0, "")))
        return super().__ior__(offsets)


class LoopSchedule:
    """A group at work, and what it must not do."""

    def __init__(self, seed):
        self.rng = rng = Random(seed)
        self.seed = seed
        self.kafka = FakeKafka(partitions=rng.choice((1, 2, 3)))
        self.kafka.create(SOURCE)
        self.kafka.offsets["sim"] = _Offsets(self._committed)
        self._write, self.kafka.write = self.kafka.write, self._written
        self.app = App("sim")
        self.retry = rng.choice(_RETRIES)
        self.is_ordered = self.retry.mode != "unordered"
        buffer = Buffer(records=rng.choice((3, 10, 1000)))
        self.app.handler(SOURCE, lanes=rng.choice((1, 2, 5)), retry=self.retry, buffer=buffer)(
            self._handle if rng.random() < 0.7 else self._handle_at_once
        )
        self.count = 0
        self.keys = {}
        """Value to its key."""
        self.order = {}
        """Key to its values, in the order of the source."""
        self.done = Counter()
        """Value to how often a call of it has returned."""
        self.landed = {}
        """Value to the topics that have a message or a copy of it."""
        self.answers = {}
        self.at_work = Counter()
        self.flaws = []
        self.dies_in = None
        """In how many calls a member dies, in the middle of its work."""
        self.was_killed = self.was_expelled = False
        """What may repeat records: a member that dies, or one that goes on with what others have."""

    def run(self):
        """Do random things, then let everything end, and check."""
        with ExitStack() as stack:
            stack.enter_context(running(self.app, kafka=self.kafka, seed=self.seed, members=self.rng.choice((1, 2, 3))))
            for _ in range(self.rng.randrange(6, 14)):
                self._act(stack)
                self._raise()
            self.dies_in = None
            self._heal()
            self.kafka.advance("2m")  # those that leave have left
            for member in self.kafka.members("sim"):
                member.restart()
                member.resume()
            try:
                self.kafka.finish(within="1h")
            except LanewayError as error:
                raise Flaw(f"it does not end: {error}") from error
            self._raise()
            self._check_end()

    def _act(self, stack):
        """Do one random thing."""
        rng = self.rng
        acts = [self._produce_some] * 3 + [self._advance] * 5 + [self._rebalance] * 2
        acts += [self._crash, self._kill, self._expel, self._leave] + [self._die] * 3
        acts += [self._fail, self._heal, self._pause, self._gap, self._grow, lambda: self._join(stack)]
        rng.choice(acts)()

    def _produce_some(self):
        for _ in range(self.rng.randrange(1, 8)):
            self._produce()

    def _advance(self):
        for member in self.kafka.members("sim"):
            if self.rng.random() < 0.5:
                member.restart()
        self.kafka.advance(f"{self.rng.choice((1, 20, 250, 700, 3000))}ms")

    def _rebalance(self):
        self.kafka.rebalance(self.app)

    def _crash(self):
        self.was_killed = True
        self.kafka.crash()

    def _kill(self):
        self.was_killed = True
        self.rng.choice(self.kafka.members("sim")).crash()

    def _die(self):
        self.dies_in = self.rng.randrange(1, 12)

    def _expel(self):
        if self.rng.random() < 0.3:
            self.was_expelled = True
            self.rng.choice(self.kafka.members("sim")).expel()

    def _join(self, stack):
        if len(self.kafka.members("sim")) < 4:
            stack.enter_context(running(self.app, kafka=self.kafka, seed=self.rng.randrange(1000)))

    def _leave(self):
        self.rng.choice(self.kafka.members("sim")).stop()

    def _fail(self):
        self.kafka.fail_writes(self.rng.choice(list(self.kafka)))

    def _heal(self):
        for topic in list(self.kafka):
            self.kafka.heal(topic)

    def _pause(self):
        member = self.rng.choice(self.kafka.members("sim"))
        self.rng.choice((member.pause, member.resume))()

    def _gap(self):
        self.kafka.skip_offsets(SOURCE, self.rng.randrange(self.kafka.partitions(SOURCE.name)), 2)

    def _grow(self):
        if not self.count and self.kafka.partitions(SOURCE.name) < 4:  # keys would change their partitions
            self.kafka.grow(SOURCE, 4)

    def _produce(self):
        key, value = self.rng.choice(_KEYS), b"%d" % self.count
        self.count += 1
        self.keys[value] = key
        self.order.setdefault(key, []).append(value)
        self.answers[value] = (self.rng.choice(_ANSWERS), self.rng.choice(_SECONDS), self.rng.choice((1, 1, 2, 9)))
        self.kafka.produce(SOURCE.message(value, key=key))

    # --- what the app does ----------------------------------------------------------------------------------------

    async def _handle(self, record):
        self._begin(record)
        try:
            await asyncio.sleep(self.answers[record.raw][1])
        finally:
            self.at_work[record.key] -= 1
        return self._end(record)

    def _handle_at_once(self, record):
        self._begin(record)
        self.at_work[record.key] -= 1
        return self._end(record)

    def _begin(self, record):
        value, key = record.raw, record.key
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in <= 0:
                self.dies_in, self.was_killed = None, True
                self.rng.choice(self.kafka.members("sim")).crash()
        if key is None:
            return
        self.at_work[key] += 1
        if self.is_ordered and self.at_work[key] > 1 and not (self.was_expelled or self.was_killed):
            self.flaws.append(f"two calls of key {key!r} at a time")
        if not self.is_ordered:
            return
        for earlier in self.order[key]:
            if earlier == value:
                break
            if not (self.done[earlier] or self._is_over(earlier)) and not self.was_expelled:
                self.flaws.append(f"{value!r} is called before {earlier!r} of the same key is over")

    def _end(self, record):
        what, _, until = self.answers[record.raw]
        if what == "raise" and record.attempt <= until:
            raise ConnectionError("planted")
        if what == "reject":
            raise Reject("planted")
        self.done[record.raw] += 1
        return OUT.message(record.raw, key=record.key) if what == "send" else None

    # --- the books ------------------------------------------------------------------------------------------------

    def _written(self, topic, key, value, **rest):
        error = self._write(topic, key, value, **rest)
        if error is None:
            self.landed.setdefault(value, Counter())[topic] += 1
        return error

    def _is_over(self, value):
        """Whether a record has an end that lasts."""
        landed = self.landed.get(value, ())
        if self.app.routes[0].error_topic_of("sim") in landed:
            return True
        return self.done[value] > 0 and (self.answers[value][0] != "send" or OUT.name in landed)

    def _is_safe(self, topic, value):
        """Whether a record of a topic need not be read there again: it is over, or a later topic has it."""
        later = self.app.routes[0].retry_topics_of("sim")
        later = later[later.index(topic) + 1 :] if topic in later else later
        return self._is_over(value) or any(each in self.landed.get(value, ()) for each in later)

    def _committed(self, place, said, before):
        (topic, partition), (offset, text) = place, said
        finished = decode_finished(offset, text)
        log = self.kafka[place]
        for entry in log.read(log.start, log.end):
            is_said = entry.offset < offset or (finished is not None and finished.has(entry.offset))
            if is_said and not self._is_safe(topic, entry.value):
                self.flaws.append(f"the commit {said} of {topic}[{partition}] says that {entry.offset} is finished")
        if offset < before[0]:
            self.flaws.append(f"the commit {said} of {topic}[{partition}] goes back behind {before[0]}")
        if offset > log.end:
            self.flaws.append(f"the commit {said} of {topic}[{partition}] lies past its end")

    def _check_end(self):
        for value, key in self.keys.items():
            if not self._is_over(value):
                raise Flaw(f"{value!r} of key {key!r} is lost")
        parked = Counter(record.raw for record in self.kafka.errors(self.app))
        if not self.was_expelled and parked and max(parked.values()) > 1:
            raise Flaw(f"parked more than once: {parked.most_common(1)}")
        if not (self.was_killed or self.was_expelled):
            repeated = [value for value, count in self.done.items() if count > 1]
            if repeated:
                raise Flaw(f"handled more than once without a crash: {repeated}")
            if self.kafka.tally.handled + self.kafka.tally.parked != len(self.keys):
                raise Flaw(f"the counts are wrong: {self.kafka.tally}")
        committed, ends = self.kafka.committed("sim", SOURCE), self.kafka.ends(SOURCE)
        if committed != ends:
            raise Flaw(f"not everything is committed: {committed} of {ends}")

    def _raise(self):
        if self.flaws:
            raise Flaw(self.flaws[0])


def simulate_loops(seed):
    """Run a schedule.

    Raises:
        Flaw: it broke a promise.
    """
    try:
        LoopSchedule(seed).run()
    except Exception as error:
        words = str(error) if isinstance(error, Flaw) else repr(error)
        raise Flaw(f"simulate_loops({seed}): {words}") from error
