"""One task: read a share's ranges, run the handler on every record, tell what happened in one row."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from laneway._clock import SystemClock
from laneway.engines.spark._worker import worker_of
from laneway.pipeline import Call, Desk
from laneway.runners import AsyncRunner, ColumnarRunner, ThreadRunner

if TYPE_CHECKING:
    from laneway.engines.spark._plan import Share
    from laneway.engines.spark._stream import Stream
    from laneway.instrumentation import Tally

__all__ = ["run_share"]


def run_share(stream: Stream, share: Share) -> Tally:
    """Run a share to its end: when this returns, every record of its ranges has reached a durable outcome."""
    worker = worker_of(stream)
    route = worker.host.routes[share.route]
    clock = SystemClock()
    desk = Desk(
        route,
        stream.app,
        lanes=share.lanes,
        sender=worker.sender,
        clock=clock,
        per_partition=max(1, route.lanes) if route.strict else None,
        notice=_notice,
    )
    desk.pace = worker.host.paces.get(route.name, 0.0)
    reader = worker.reader
    reader.open(share.ranges)
    worker.host.is_busy = True
    try:
        if route.kind == "columnar":
            ColumnarRunner(desk, clock).run(reader)
        elif route.is_async:
            call = Call(route, clock)
            worker.host.loop.run_until_complete(_run_async(desk, call, clock, reader))
        else:
            ThreadRunner(desk, Call(route, clock), clock).run(reader)
    finally:
        worker.host.is_busy = False
        reader.close()
    worker.host.paces[route.name] = desk.pace
    tally = desk.close()
    tally.gaps, tally.lost = reader.gaps, reader.lost
    return tally


def _notice(text: str) -> None:
    """Spark passes a worker's stderr on to the driver, and on a cluster to the executor's log."""
    sys.stderr.write(f"laneway: {text}\n")
    sys.stderr.flush()


async def _run_async(desk: Desk, call: Call, clock: SystemClock, reader: Any) -> None:
    await AsyncRunner(desk, call, clock).run(reader)
