"""One task: read some partitions, run all handlers on every record, say in one row how far each has come."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark import TaskContext

from laneway._core.locate import HandlerStatus, Location, Spot, status_of
from laneway._core.state import Inherit, Load
from laneway._engines.spark.plan import Position, TaskReport
from laneway._engines.spark.span import Span, SpanSource
from laneway._engines.spark.worker import worker_of
from laneway._runtime.assignment import FixedAssignment, NothingToRecover, PlannedDue
from laneway._runtime.flow import Flow
from laneway._runtime.health.snapshot import located
from laneway._runtime.partition import Partition, Partitions
from laneway._runtime.recovery import Portion, recover_copies
from laneway._runtime.retry_source import RetrySource
from laneway._runtime.topics import ReadPlan
from laneway._runtime.worker_loop import WorkerLoop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laneway._engines.spark.plan import TaskSpec
    from laneway._engines.spark.query_spec import QuerySpec
    from laneway._engines.spark.worker import Worker
    from laneway._kafka import Place
    from laneway._runtime.handler_worker import HandlerWorker
    from laneway.observe import Tally

__all__ = ["TaskHealth", "run_task"]

_LOOK = 0.02  # seconds between checks of the orders while handlers end
_PATIENCE = 0.3  # seconds for the lanes to answer; an event loop that does not is blocked
_TIMEOUT = 30.0  # seconds for the delivery of a message
Found = tuple[HandlerStatus, list[tuple[str, int, int, int]], list[tuple[Spot, Location]]]


def run_task(stream: QuerySpec, spec: TaskSpec) -> TaskReport:
    """Run a task until its ranges or its span end.

    When this returns, every record that the report calls finished has a durable outcome.
    """
    worker = worker_of(stream)
    context = TaskContext.get()
    tries, attempt, task = (
        (0, 0, 0) if context is None else (context.attemptNumber(), context.taskAttemptId(), context.partitionId())
    )
    line = worker.line_to(stream.control)
    span = Span(line, stream.batch_time)
    run = TaskRun(worker, stream, spec, span)
    # A number for the counts of each handler: a task has as many as there are handlers.
    numbers = {task * len(run.handlers) + at: handler for at, handler in enumerate(run.handlers)}
    worker.is_busy = True
    for number, handler in numbers.items():
        line.watch(number, attempt, handler.processor.tally, run.look_at(handler))
    try:
        run.recover(is_repeated=spec.is_recovering or tries > 0)
        run.work()
        positions = list(run.positions())
        tallies = run.close()
    finally:
        for number in numbers:
            line.unwatch(number)
        worker.is_busy = False
    return TaskReport(
        spec.batch,
        attempt,
        stream.topic,
        spec.topic_id,
        positions,
        [(part.topic, part.partition, part.since) for part in spec.parts if part.length],
        dict(zip(numbers, tallies, strict=True)),
    )


class TaskRun:
    """Runs a `WorkerLoop` over the partitions of a task, with the handlers it feeds."""

    def __init__(self, worker: Worker, stream: QuerySpec, spec: TaskSpec, span: Span) -> None:
        self._worker = worker
        self._spec = spec
        self._span = span
        self.handlers: list[HandlerWorker] = worker.handlers(spec.lanes, stream)
        self._parts = {part.place: part for part in spec.parts if part.length}
        fed = {
            topic: [handler for handler in self.handlers if topic in handler.topics]
            for topic in {part.topic for part in spec.parts}
        }
        self._fed = fed
        partitions = Partitions()
        for place, part in self._parts.items():
            position = part.position
            owned = Partition(place, fed[part.topic], position.begin)
            owned.inherited = position.finished_from(position.begin)
            partitions.begin(owned)
        feeds = [feed for feed in stream.feeds if any(topic == feed.topic for topic, _ in self._parts)]
        source, retries = stream.topic, [feed.topic for feed in feeds if feed.step]
        is_delayed = any(feed.delay for feed in feeds if not feed.step)
        plan = ReadPlan(topics=[source], retry_topics={source: retries}, delayed=[source] if is_delayed else ())
        beside = [place for place in self._parts if place[0] in plan.beside]
        live = [(partitions[place], part.stop) for place, part in self._parts.items() if place[0] in plan.live]
        # The reader of a delayed source belongs to the retry source, which reads what is due of it.
        reader = None if is_delayed else worker.reader_of(source)
        self._source = SpanSource(reader, [] if is_delayed else live, fed.get(source, ()))
        self._retries = RetrySource(
            plan.beside, partitions, stream.consumer, skip_lost=stream.skip_lost, readers=worker.readers
        )
        self._partitions = partitions
        self._loop = WorkerLoop(
            plan,
            source=self._source,
            rebalance=FixedAssignment(partitions, fed),
            flow=Flow(partitions, fed, plan.live),
            recovery=NothingToRecover(),
            workers=fed,
            retry_source=self._retries,
            monitor=PlannedDue({place: self._parts[place].stop for place in beside}),
        )

    def look_at(self, handler: HandlerWorker) -> TaskHealth:
        """The status of one handler, for the driver."""
        return TaskHealth(handler, [part for part in self._partitions.values() if handler in part.workers])

    def recover(self, *, is_repeated: bool) -> None:
        """Load what is finished, what waits on retry topics, and what a killed run has copied into the handlers."""
        parts = self._spec.parts
        for handler in self.handlers:
            spec = handler.spec
            for part in self._parts.values():
                own, begin = part.positions.get(spec.name), part.position.begin
                found = None if own is None or own == part.position else own.finished_from(begin)
                if found is not None:
                    handler.post(Inherit(*part.place, found))
            if not (is_repeated or spec.parks_behind):
                continue
            finished = {part.place: part.position.finished_from(part.position.begin) for part in parts}
            portion = Portion(
                {part.partition for part in parts},
                {part.place: (part.position.begin, part.since) for part in parts},
                # A killed task may have added copies after this one was planned.
                None if is_repeated else {part.place: part.log_end for part in parts if part.topic != spec.topic.name},
                {place: found for place, found in finished.items() if found is not None},
            )
            steps = handler.processor.steps
            waiting, copied = recover_copies(
                self._worker, [step.spec for step in steps], portion, is_repeated=is_repeated
            )
            for step, index in zip(steps, copied, strict=True):
                step.copied.merge(index)
            if waiting:
                handler.post(Load(waiting))

    def work(self) -> None:
        """Read and handle until everything is finished, or the span is over and no call is in flight."""
        try:
            self._source.open()
            for handler in self.handlers:
                handler.start()
            try:
                self._loop.run(self._is_read)
            finally:
                self._loop.close()
            for handler in self.handlers:
                handler.complete()
            self._drain()
        except BaseException:
            for handler in self.handlers:  # no call may continue when Spark repeats the task elsewhere
                handler.finish()
                handler.abandon()
            for handler in self.handlers:
                while not handler.wait(1.0):
                    pass
            raise

    def positions(self) -> Iterator[tuple[str, str, int, Position]]:
        """The position of each handler."""
        for place, part in self._parts.items():
            owned = self._partitions[place]
            for handler in self._fed[part.topic]:
                name = handler.spec.name
                yield name, *place, part.positions[name].moved(*owned.progress_of(handler))

    def close(self) -> list[Tally]:
        """Check that nothing is left, and return the counts of each handler."""
        tallies = [handler.close() for handler in self.handlers]
        tallies[0].lost += self._source.lost
        tallies[0].gaps += max(0, self._loop.gaps - sum(tally.lost for tally in tallies))
        return tallies

    def _is_read(self) -> bool:
        """Whether no more will be read."""
        if self._span.is_over or (self._source.is_exhausted and self._retries.is_idle):
            return True
        return any(handler.is_over for handler in self.handlers)

    def _drain(self) -> None:
        """Wait for the handlers; they start nothing more if the span is over or one of them has failed."""
        is_told: bool | None = None
        while running := [handler for handler in self.handlers if not handler.is_over]:
            has_failed = any(handler.error is not None for handler in self.handlers)
            if (self._span.is_over or has_failed) and is_told is not (is_last := self._span.is_last or has_failed):
                is_told = is_last
                for handler in running:
                    handler.finish(is_last=is_last)
            running[0].wait(_LOOK)


class TaskHealth:
    """Inspects a handler of a task from another thread.

    A record's location is looked up only when the lowest unfinished offset of its partition has not changed since the
    last look.
    """

    def __init__(self, handler: HandlerWorker, partitions: Sequence[Partition]) -> None:
        self._handler = handler
        self._partitions = partitions
        self._lows: dict[Place, int] = {}

    def look(self) -> Found | None:
        """The status now; None when it changed during the look."""
        try:
            standing = [self._standing(partition) for partition in self._partitions]
            stuck = [
                (topic, number, low)
                for topic, number, low, delivered in standing
                if low < delivered and self._lows.get((topic, number)) == low
            ]
            self._lows = {(topic, number): low for topic, number, low, _ in standing}
            locations = located(self._handler, stuck, _PATIENCE)[0] if stuck else {}
            status = status_of(self._handler.processor, time.monotonic(), _TIMEOUT)
        except RuntimeError:
            return None
        return status, standing, list(locations.items())

    def _standing(self, partition: Partition) -> tuple[str, int, int, int]:
        # What was delivered comes last: a record that comes meanwhile lies before it, and so counts as under way.
        end, unfinished = partition.progress_of(self._handler)
        return *partition.place, unfinished[0] if unfinished else end, partition.delivered
