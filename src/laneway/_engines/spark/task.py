"""One task: read a share's ranges, run the handler on every record, tell what happened in one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from laneway._clock import SystemClock
from laneway._core.call import Call
from laneway._core.processor import Processor
from laneway._engines.spark.worker import worker_of
from laneway._runtime.recovery import FreshSource, recover_copies
from laneway._runtime.runners import EventLoopRunner, TableRunner, ThreadRunner

if TYPE_CHECKING:
    from laneway._engines.spark.plan import TaskSpec
    from laneway._engines.spark.query_spec import QuerySpec
    from laneway.observe import Tally

__all__ = ["run_task"]


def run_task(stream: QuerySpec, share: TaskSpec) -> tuple[int, Tally]:
    """Run a share to its end: when this returns, every record of its ranges has reached a durable outcome.

    Returns:
        Spark's number of this attempt, and the counts.
    """
    worker = worker_of(stream)
    route = worker.route_of(share.route, share.step)
    backlog, copied = recover_copies(worker, route, share, is_repeated=share.is_recovering or _attempt() > 0)
    clock, breaker = SystemClock(), worker.host.breakers[stream.app, route.name]
    line = worker.line_to(stream.control)
    context = TaskContext.get()
    task, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
    processor = Processor(
        [route],
        stream.app,
        lanes=route.processes or share.lanes,
        sender=worker.sender,
        clock=clock,
        per_partition=max(1, route.lanes) if route.strict else None,
        notice=line.notice,
        deferred=backlog,
        breaker=breaker,
    )
    if route.breaker is not None and line.link is not None:
        line.link.watch_breaker(stream.app, route.name, breaker)
    processor.outbox.diagnose = worker.monitor.trouble
    processor.pace = worker.host.paces.get((stream.app, route.name), 0.0)
    reader = worker.reader_of(route.topic.name)
    source: Any = FreshSource(reader, copied) if copied else reader
    reader.open(share.ranges)
    worker.host.is_busy = True
    line.watch(task, attempt, processor.tally)
    try:
        if route.kind == "columnar":
            TableRunner(processor, clock).run(source)
        elif route.is_async:
            call = Call(route, clock)
            worker.host.loop.run_until_complete(_run_async(processor, call, clock, source))
        elif route.processes:
            runner = worker.processes_of(route, processor)
            runner.run(source)
            worker.keep(route, runner)
        else:
            ThreadRunner(processor, Call(route, clock), clock).run(source)
    finally:
        line.unwatch(task)
        worker.host.is_busy = False
        reader.close()
    worker.host.paces[stream.app, route.name] = processor.pace
    tally = processor.close()
    tally.gaps, tally.lost, tally.already_copied = reader.gaps, reader.lost, copied.already_copied
    return attempt, tally


def _attempt() -> int:
    """How often Spark has tried this task before."""
    context = TaskContext.get()
    return 0 if context is None else int(context.attemptNumber())


async def _run_async(processor: Processor, call: Call, clock: SystemClock, source: Any) -> None:
    await EventLoopRunner(processor, call, clock).run(source)
