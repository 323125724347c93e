"""ProcessorState: what the processor of a handler owns. Commands: what other threads may ask of it.

The processor's own thread obeys commands in order, before anything else.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laneway._core.acks import Acks
from laneway._core.breaker import BreakerState, CircuitBreaker
from laneway._core.copies import CopyWriter
from laneway._core.deferred_keys import DeferredKeys
from laneway._core.events import EventEmitter
from laneway._core.outbox import Outbox
from laneway._core.scheduler import Lanes
from laneway._core.step import Step
from laneway._core.turn import TurnSize
from laneway.errors import UnreachableStateError
from laneway.observe import Histogram, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway._clock import Clock
    from laneway._core.call import Call
    from laneway._core.dedup import Dedup
    from laneway._core.finished_map import FinishedMap
    from laneway._core.messages import CopyMessage
    from laneway._core.scheduler import KeyQueue
    from laneway._core.turn import TurnReport
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway._runtime.lease import Lease
    from laneway.observe import Notes
    from laneway.typing import Sender

    Turn = list[KeyQueue[Record[Any]]]

__all__ = ["HANGS", "Close", "Command", "Drain", "Inherit", "Load", "Open", "ProcessorState", "Release", "SetLanes"]


HANGS = 0.1  # seconds after which a turn, which is meant to take 2 ms, keeps only the key that it is at
_UNSURE = 0.05  # seconds between looks while it is not known whether the partitions are still owned


@dataclass(frozen=True, slots=True)
class Open:
    """Take the records of a newly assigned partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Release:
    """Begin nothing more of a partition; the next owner runs what no lane has begun."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Close:
    """Forget everything about a fenced partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Load:
    """What waits on the retry topics of newly assigned partitions, except those revoked since."""

    deferred: DeferredKeys
    gone: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Inherit:
    """These records of a partition were finished before and are not run again."""

    topic: str
    partition: int
    finished: FinishedMap


@dataclass(frozen=True, slots=True)
class SetLanes:
    """Change the number of lanes; busy lanes end their turns."""

    lanes: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Begin nothing more, and finish what was begun; a later processor reads again what is dropped."""

    is_last: bool = True
    """No later processor in this process: records below the highest begun one are run, so that none finished lies past
    an unfinished one, and postponed retries are dropped. Otherwise everything not begun is dropped, except records that
    were tried: only this processor knows how often.
    """


Command = Open | Release | Close | Load | Inherit | SetLanes | Drain


class ProcessorState:
    """Everything about one handler in one process. Other modules of the room reach into it through `Processor` only.

    Args:
        specs: the handler on each of its steps that are run here; the first one says what they have in common.
        app: the app's name, for the copies.
        lanes: how many lanes this process has for the handler.
        sender: where messages and copies go.
        clock: the time.
        per_partition: lanes of each partition when they are strict.
        deferred: the keys that have records waiting on retry topics, when later ones queue behind them.
        listener: gets notes, such as of an error topic that cannot be written to; a `Listener` also gets each event at
            once. None keeps events only in the tally.
        breaker: state of the handler's breaker, when it is to outlive this processor.
        lease: whether this process surely owns its partitions; None for always.
        dedup: knows which records are done already, when the handler has a store for that.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        specs: Sequence[HandlerSpec],
        app: str,
        *,
        lanes: int,
        sender: Sender,
        clock: Clock,
        per_partition: int | None = None,
        deferred: DeferredKeys | None = None,
        listener: Notes | None = None,
        breaker: BreakerState | None = None,
        lease: Lease | None = None,
        dedup: Dedup | None = None,
    ) -> None:
        spec = self.spec = specs[0]
        self.tally = Tally(lanes=lanes)
        self.lanes = Lanes(lanes, per_partition)
        self.steps = [Step(own, self.lanes) for own in specs]
        self.events = EventEmitter(spec, self.tally, listener)
        self.breaker = CircuitBreaker.of(spec, breaker, tally=self.tally, events=self.events, clock=clock)
        self.outbox = Outbox(sender, self.tally, self.events)
        self.acks = Acks()
        self.deferred = (DeferredKeys() if deferred is None else deferred) if spec.parks_behind else None
        """Empty or None: no key waits on a retry topic, and every one may run."""
        self.is_closing = False
        """Nothing more will be admitted: a batch need not wait to be full."""
        self.lease = lease
        self.dedup = dedup
        self.call: Call | None = None
        """Runs the turns, where it can say what of a turn it has not begun; the runner sets it."""
        self.begun: dict[int, tuple[float, Turn]] = {}
        """The turns that run, by their ids, and since when: one entry a turn, however many records it holds."""
        self._clock = clock
        self._writer = CopyWriter(spec, app, clock, self.events)
        self._only = self.steps[0] if len(self.steps) == 1 else None
        self._by_topic = {step.spec.topic.name: step for step in self.steps}
        self._next_step = 0
        self._inbox: deque[Command] = deque()
        self._drain: Drain | None = None
        """Set when nothing more is to be begun."""
        self._unsettled: list[tuple[Turn, TurnReport]] = []
        """What ended while the lease had run out."""
        self._several: dict[int, tuple[float, Turn]] = {}
        """Those of `begun` that hold several keys, the oldest first."""
        self._parts: dict[int, TurnReport] = {}
        """What was settled early of a turn that hangs."""
        self._late: dict[tuple[int, Any], list[CopyMessage]] = {}
        """Step and key to the copies that take too long, though the key did not wait for them at first."""
        self._turn_size = TurnSize()
        self._latency = Histogram(self.tally.latency)
        self._is_batch = spec.is_batch
        self._within = spec.within.total_seconds()
        self._most_records, self._most_size = spec.buffer.records, int(spec.buffer.size)
        self._is_ordered_by_key = spec.kept_order == "key" and spec.order_by is None
        self._is_plain = self.breaker is None and not self.events.wants_ends and dedup is None
        """Whether a record that was handled need not be reported."""

    @property
    def wake(self) -> Callable[[], None] | None:
        """Called by other threads when `tick` has something to do; the runner sets it."""
        return self.acks.wake

    @wake.setter
    def wake(self, wake: Callable[[], None]) -> None:
        self.acks.wake = wake
        if self.dedup is not None:
            self.dedup.wake = wake

    @property
    def ready(self) -> int:
        """Records of keys that a lane could take."""
        only = self._only
        return only.scheduler.ready if only is not None else sum([step.scheduler.ready for step in self.steps])

    @property
    def records(self) -> int:
        """Records that are in a queue or in work."""
        only = self._only
        return only.scheduler.records if only is not None else sum([step.scheduler.records for step in self.steps])

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum([step.scheduler.size for step in self.steps])

    @property
    def room(self) -> int:
        """How many more records may be read now."""
        if self.breaker is not None and not self.breaker.lets_read(has_records=self.records > 0):
            return 0
        # What waits for its acknowledgement is in memory too: without it a slow topic would be read without end.
        if self.size + self.outbox.size >= self._most_size:
            return 0
        # A record may lead to many messages, and one message may stand for the records of a whole batch.
        held = max(self.records + self.pending, sum([step.ledger.outstanding for step in self.steps]))
        return max(0, self._most_records - held)

    @property
    def is_done(self) -> bool:
        """Whether everything admitted has reached its end."""
        return not (self.records or self.pending or self.acks)

    @property
    def pending(self) -> int:
        """Messages without an answer, and records that are not marked as done yet."""
        return self.outbox.pending + (0 if self.dedup is None else self.dedup.pending)

    @property
    def can_start(self) -> bool:
        """Whether a further lane could begin now. A turn that ends may make more ready than its own lane takes."""
        if self.is_store_away or (self.breaker is not None and self.breaker.is_shut):
            return False
        return bool(self.ready) and self.lanes.busy < self.lanes.total and self.is_sure

    @property
    def is_store_away(self) -> bool:
        """Whether nothing can be claimed now. To call and postpone each record would keep a core busy."""
        return self.dedup is not None and self.dedup.away_until > self._clock.monotonic()

    @property
    def is_sure(self) -> bool:
        """Whether this process surely owns its partitions. If not, nothing begins, and what ends is settled later."""
        return self.lease is None or self.lease.is_valid

    @property
    def pace(self) -> float:
        """Seconds a call of the handler takes; 0 until the first call is over. A later processor may be given it."""
        return self._turn_size.seconds

    @pace.setter
    def pace(self, seconds: float) -> None:
        self._turn_size.learn(seconds)

    @property
    def next_wake(self) -> float | None:
        """When `tick` has something to do even if nothing else happens."""
        if not self.is_sure:
            return self._clock.monotonic() + _UNSURE
        wakes = [self.outbox.next_wake, *(step.scheduler.next_wake for step in self.steps)]
        if self.dedup is not None and self.is_store_away:
            wakes.append(self.dedup.away_until)
        if self._several and self.call is not None:
            wakes.append(next(iter(self._several.values()))[0] + HANGS)
        times = [time for time in wakes if time is not None]
        if self.breaker is not None and self.breaker.is_open:
            times += self.breaker.next_wakes(can_read=not self.records and not self.is_closing)
        elif self.lanes.busy < self.lanes.total:
            times += [step.short_since + self._within for step in self.steps if step.short_since is not None]
        return min(times, default=None)

    def step_of(self, topic: str) -> Step:
        """The step that reads a topic."""
        return self._by_topic[topic] if self._only is None else self._only

    def _confirm(self, records: Sequence[Record[Any]]) -> None:
        """These records had their effect: mark them as done where they have an id, then finish them."""
        if self.dedup is not None:
            records = self.dedup.mark(records)
        if records:
            self._finish(records)

    def _finish(self, records: Sequence[Record[Any]]) -> None:
        """The outcome of these records is durable."""
        if self._only is not None:
            self._finish_of(self._only, records)
        elif len(records) == 1:
            self._finish_of(self._by_topic[records[0].topic], records)
        else:
            for step in self.steps:
                topic = step.spec.topic.name
                own = [record for record in records if record.topic == topic]
                if own:
                    self._finish_of(step, own)

    def _finish_of(self, step: Step, records: Sequence[Record[Any]]) -> None:
        if self.dedup is not None:
            self.dedup.finished(records)
        if step.is_guarded:
            records = [record for record in records if not step.is_foreign(record)]
            if not records:
                return
        wall = self._clock.wall()
        now = int(wall * 1000)
        if len(records) == 1:  # by far the commonest with a slow handler: no lists
            record = records[0]
            step.ledger.finish(record.partition, record.offset)
            self._latency.add(now - record.timestamp)
        else:
            step.ledger.finish_all([(record.partition, record.offset) for record in records])
            self._latency.add_all([now - record.timestamp for record in records])
        self.tally.last = wall
        if step.spec.step:
            self._leave(step, records)

    def _leave(self, step: Step, records: Sequence[Record[Any]]) -> None:
        """Records that waited on a retry topic have reached their end there."""
        if self.deferred is not None and step.spec.step:
            for record in records:
                self.deferred.left(record.partition, self.spec.lane_key(record), step.spec.step)

    def _supersede(self, records: Sequence[Record[Any]]) -> None:
        """The newest record of their key is finished, and so are these."""
        self.tally.superseded += len(records)
        if records:
            self._finish(records)

    def close(self) -> Tally:
        """Check that nothing is left but what was dropped, and give the tally.

        Raises:
            UnreachableStateError: when a record has not reached its end.
        """
        left = sum(step.left for step in self.steps)
        if not self.is_done or left:
            raise UnreachableStateError(
                f"{left} records of handler {self.spec.name!r} are unfinished at the end of a task. This should never "
                "happen. Please open an issue."
            )
        tally = self.tally
        span = tally.last - tally.first
        # The time all lanes spent in calls, over the time that passed: how many were busy on average.
        tally.lanes_busy = tally.seconds / span if span > 0 else 0.0
        return tally
