"""group_loop: puts the loop of a group's member together, whatever its clients are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laneway._clock import SystemClock
from laneway._runtime.flow import Flow
from laneway._runtime.rebalance import Rebalance
from laneway._runtime.recreated_topics import Logs
from laneway._runtime.worker_loop import WorkerLoop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laneway._clock import WaitingClock
    from laneway._kafka import Admin
    from laneway._runtime.broker_monitor import BrokerMonitor
    from laneway._runtime.commits import CommitStrategy
    from laneway._runtime.handler_worker import HandlerWorker
    from laneway._runtime.lease import Lease
    from laneway._runtime.partition import Partitions
    from laneway._runtime.retry_source import RetrySource
    from laneway._runtime.topics import ReadPlan
    from laneway._runtime.worker_loop import RecordSource, Recovery
    from laneway.observe import Listener

__all__ = ["LoopClients", "group_loop"]

_SYSTEM = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopClients:
    """What a loop reads, asks and commits with."""

    source: RecordSource
    """Reads as a member of the group."""
    commits: CommitStrategy
    """How offsets reach the group."""
    retry_source: RetrySource
    recovery: Recovery
    monitor: BrokerMonitor
    admin: Admin
    lease: Lease
    listener: Listener
    """Gets events of partitions and commits, and notes."""
    clock: WaitingClock = _SYSTEM


def group_loop(
    plan: ReadPlan, clients: LoopClients, workers: Mapping[str, Sequence[HandlerWorker]], partitions: Partitions
) -> WorkerLoop:
    """A loop that has not joined its group yet.

    Args:
        plan: what is read.
        clients: what with.
        workers: topic, of retries too, to those of the handlers that read it.
        partitions: the ones owned later.

    Raises:
        BrokerUnavailableError: no broker answered.
    """
    flow = Flow(partitions, workers, plan.live)
    logs = Logs(
        plan,
        source=clients.source,
        workers=workers,
        partitions=partitions,
        monitor=clients.monitor,
        admin=clients.admin,
        notes=clients.listener,
        clock=clients.clock,
    )
    logs.learn()
    rebalance = Rebalance(
        plan,
        source=clients.source,
        commits=clients.commits,
        workers=workers,
        partitions=partitions,
        flow=flow,
        recovery=clients.recovery,
        logs=logs,
        admin=clients.admin,
        lease=clients.lease,
        listener=clients.listener,
        clock=clients.clock,
    )
    return WorkerLoop(
        plan,
        source=clients.source,
        rebalance=rebalance,
        flow=flow,
        recovery=clients.recovery,
        workers=workers,
        retry_source=clients.retry_source,
        monitor=clients.monitor,
        clock=clients.clock,
    )
