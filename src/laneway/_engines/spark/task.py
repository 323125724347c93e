"""One task: read a share's ranges, run the handler on every record, say in one row how far it has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from laneway._clock import SystemClock
from laneway._core.call import Call
from laneway._engines.spark.plan import TaskReport
from laneway._engines.spark.span import Span, SpanProcessor
from laneway._engines.spark.worker import worker_of
from laneway._runtime.former_copies import recover_copies
from laneway._runtime.runners import EventLoopRunner, TableRunner, ThreadRunner

if TYPE_CHECKING:
    from laneway._declare.handler import HandlerSpec
    from laneway._engines.spark.plan import TaskSpec
    from laneway._engines.spark.query_spec import QuerySpec
    from laneway._engines.spark.worker import Worker

__all__ = ["run_task"]


def run_task(stream: QuerySpec, share: TaskSpec) -> TaskReport:
    """Run a share until its ranges or its time end.

    When this returns, every record that the report calls finished has reached a durable outcome.
    """
    worker = worker_of(stream)
    route = worker.route_of(share.route, share.step)
    context = TaskContext.get()
    tries, attempt, task = (
        (0, 0, 0) if context is None else (context.attemptNumber(), context.taskAttemptId(), context.partitionId())
    )
    backlog, copied = recover_copies(worker, route, share, is_repeated=share.is_recovering or tries > 0)
    clock, breaker = SystemClock(), worker.host.breakers[stream.app, route.name]
    line = worker.line_to(stream.control)
    reader = worker.reader_of(route.topic.name)
    span = Span(reader, dict(share.positions), copied, line=line, seconds=stream.batch_time)
    processor = SpanProcessor(
        [route],
        stream.app,
        lanes=route.processes or share.lanes,
        sender=worker.sender,
        clock=clock,
        per_partition=max(1, route.lanes) if route.strict else None,
        notice=line.notice,
        deferred=backlog,
        breaker=breaker,
        span=span,
    )
    if route.breaker is not None and line.link is not None:
        line.link.watch_breaker(stream.app, route.name, breaker)
    processor.outbox.diagnose = worker.monitor.trouble
    processor.pace = worker.host.paces.get((stream.app, route.name), 0.0)
    reader.open(share.ranges)
    worker.host.is_busy = True
    line.watch(task, attempt, processor.tally)
    try:
        _run(worker, route, processor, clock, span)
        positions = span.reached(share.ranges, processor)
    finally:
        line.unwatch(task)
        worker.host.is_busy = False
        reader.close()
    worker.host.paces[stream.app, route.name] = processor.pace
    tally = processor.close()
    tally.gaps, tally.lost, tally.already_copied = reader.gaps, reader.lost, copied.already_copied
    return TaskReport(
        share.batch,
        attempt,
        route.name,
        route.topic.name,
        share.topic_id,
        positions,
        dict(share.others),
        {partition: time for topic, partition, _, time in share.since if topic == route.topic.name},
        tally,
    )


def _run(worker: Worker, route: HandlerSpec, processor: SpanProcessor, clock: SystemClock, span: Any) -> None:
    if route.kind == "columnar":
        TableRunner(processor, clock).run(span)
    elif route.is_async:
        worker.host.loop.run_until_complete(_run_async(processor, Call(route, clock), clock, span))
    elif route.processes:
        runner = worker.processes_of(route, processor)
        runner.run(span)
        worker.keep(route, runner)
    else:
        ThreadRunner(processor, Call(route, clock), clock).run(span)


async def _run_async(processor: SpanProcessor, call: Call, clock: SystemClock, span: Any) -> None:
    await EventLoopRunner(processor, call, clock).run(span)
