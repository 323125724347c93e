"""WatchedCrew: what health is judged by, of a member of the group and the handlers in this process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from laneway._runtime.health.snapshot import MemberStatus
from laneway._runtime.health.watched_loop import WatchedLoop

if TYPE_CHECKING:
    from laneway._engines.direct.crew import Crew
    from laneway._runtime.health.snapshot import Snapshot

__all__ = ["WatchedCrew"]

_SILENT = 1 / 3  # of max_poll_interval: a member that has not polled for as long is reported


class WatchedCrew(WatchedLoop):
    """The health source of a crew: its loop, its handlers and its group membership."""

    def __init__(self, crew: Crew) -> None:
        super().__init__(
            crew.worker_loop,
            crew.stations,
            crew.monitor,
            sources=crew.sources,
            where=",".join(crew.cluster.brokers),
            timeout=crew.cluster.producer.timeout.total_seconds(),
        )
        self._crew = crew

    def look(self) -> Snapshot:
        status, consumer = self._crew.worker_loop.status(), self._crew.cluster.consumer
        member = MemberStatus(
            status.has_joined,
            self._crew.member.is_over,
            time.monotonic() - status.polled,
            consumer.max_poll_interval.total_seconds() * _SILENT,
            consumer.session_timeout,
        )
        return super().look()._replace(member=member)
