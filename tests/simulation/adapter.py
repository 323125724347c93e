"""The one module of the simulation that knows the core. The schedules and the books see only what is defined here."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from laneway._core.call import Call
from laneway._core.copy_index import CopyIndex
from laneway._core.deferred_keys import DeferredKeys
from laneway._core.ledger import Ledger
from laneway._core.processor import Processor
from laneway._core.turn import TurnReport
from laneway.errors import Skip
from simulation.parts import Flaw

__all__ = ["CopyIndex", "Core"]


class _WatchedLedger(Ledger):
    """Shows the checker each finish before it is booked."""

    __slots__ = ("_check",)

    def __init__(self, check):
        super().__init__()
        self._check = check

    def finish_all(self, places):
        places = list(places)
        for place in places:
            self._check(*place)
        super().finish_all(places)

    def finish(self, partition, offset):
        self._check(partition, offset)
        super().finish(partition, offset)


class _Part(NamedTuple):
    """The records of one key in a turn."""

    key: object
    lane: object
    records: list


class _Turn:
    """What a lane has to do."""

    def __init__(self, step, queues):
        self.step, self.queues = step, queues
        self.parts = [_Part(queue.key, queue.lane, queue.work()) for queue in queues]

    @property
    def records(self):
        return [record for part in self.parts for record in part.records]


class _Report:
    """What became of the calls of a turn."""

    def __init__(self, result):
        self.result = result
        self.errors = [*result.failures.values(), *((record, error) for _, record, error in result.members)]
        """Failed records with what the handler or the codec raised."""


class Core:
    """The processing core of one handler with its retry steps, as a worker drives it.

    Args:
        steps: the handler as it runs on each step; the source is step 0.
        lanes: how many calls may run at once.
        senders: where the messages of each step go.
        clock: the time.
        check_finish: called with step, partition and offset before a record is finished.
        per_partition: lanes of each partition when they are strict.
        waiting: step to the records that wait on its retry topic at the start.
        is_shared: whether all steps see at once which keys wait; else each sees only what waited at the start.
    """

    def __init__(self, steps, *, lanes, senders, clock, check_finish, per_partition=None, waiting=None, is_shared=True):
        self._steps = steps
        self._calls = [Call(route, clock) for route in steps]
        self._shared = self._deferred(waiting, 0) if is_shared else None
        self._processors = []
        for step, (route, sender) in enumerate(zip(steps, senders, strict=True)):
            processor = Processor(
                [route],
                "sim",
                lanes=lanes,
                sender=sender,
                clock=clock,
                per_partition=per_partition,
                deferred=self._shared if is_shared else self._deferred(waiting, step),
            )
            processor.steps[0].ledger = _WatchedLedger(partial(check_finish, step))
            self._processors.append(processor)

    def _deferred(self, waiting, above):
        deferred = DeferredKeys()
        for step, records in (waiting or {}).items():
            if step > above:
                deferred.load(records, step, self._steps[step].lane_key)
        return deferred

    def room(self, step=0):
        """How many records may be admitted."""
        return self._processors[step].room

    def admit(self, records, step=0, *, is_last=False):
        """Hand over records that were read from the topic of a step; *is_last*: no more will come."""
        self._processors[step].admit(records)
        self._processors[step].is_closing = is_last

    def is_ready(self, step=0):
        """Whether a record waits for a lane."""
        return bool(self._processors[step].ready)

    def take(self, step=0):
        """A turn, or None."""
        queues = self._processors[step].take()
        return None if queues is None else _Turn(step, queues)

    def run(self, turn):
        """Call the handler for a turn and give the report."""
        route, call = self._steps[turn.step], self._calls[turn.step]
        if not route.is_batch:
            return _Report(call.single(turn.queues))
        if not route.is_async:
            return _Report(call.batch(turn.queues))
        try:
            call.batch_async(turn.queues).send(None)
        except StopIteration as end:
            return _Report(end.value)
        raise AssertionError("an async batch waits for nothing")

    def run_partly(self, turn, *, stops, seconds):
        """As `run` for single records, but the turn may end after any key: *stops* is asked after each."""
        route, result = self._steps[turn.step], TurnReport()
        posted = self._calls[turn.step].encoded
        for index, part in enumerate(turn.parts):
            done = 0
            for record in part.records:
                result.calls += 1
                try:
                    if record.raw is not None:
                        route.topic.value.decode(record.raw)
                    answer = route.function(record)
                    if answer is None:
                        result.handled.append(record)
                    else:
                        result.outputs.append(((record,), posted(answer)))
                except Skip:
                    result.skipped.append(record)
                except Exception as error:
                    if isinstance(error, Flaw):
                        raise
                    result.failures[index] = (record, error)
                    break
                done += 1
            result.done.append(done)
            if stops():
                break
        result.seconds = seconds()
        return _Report(result)

    def settle(self, turn, report):
        """Act on a report."""
        self._processors[turn.step].settle(turn.queues, report.result)

    def tick(self):
        """Let time pass."""
        for processor in self._processors:
            processor.tick()

    @property
    def next_wake(self):
        """When `tick` has something to do, or None."""
        return min((time for processor in self._processors if (time := processor.next_wake) is not None), default=None)

    @property
    def is_done(self):
        """Whether everything admitted has ended."""
        return all(processor.is_done for processor in self._processors)

    @property
    def is_empty(self):
        """Whether nothing is left in memory."""
        return self.is_done and not any(
            processor.outbox.pending or processor.outbox.size or processor.size for processor in self._processors
        )

    @property
    def waiting_keys(self):
        """How many keys have records waiting on retry topics, as far as all steps share that."""
        return 0 if self._shared is None else len(self._shared)

    def committable(self, partition, step=0):
        """The offset that may be committed, or None."""
        return self._processors[step].steps[0].ledger.committable(partition)

    def unfinished(self, partition, step=0):
        """The offsets admitted and not finished, in order."""
        return self._processors[step].steps[0].ledger.unfinished(partition)

    def close(self):
        """End; gives the tally of each step."""
        return [processor.close() for processor in self._processors]
