"""HandlerState: what a process keeps of a handler from one worker to the next."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from laneway._core.breaker import BreakerState
from laneway._core.retry_functions import on_all_steps

if TYPE_CHECKING:
    from laneway._core.dedup import Dedup
    from laneway._declare.handler import HandlerSpec
    from laneway._runtime.runners import ProcessRunner
    from laneway.dedup import DedupClient, InlineClient

__all__ = ["HandlerState"]


class HandlerState:
    """What was learnt of a handler, and what is costly to make. One worker at a time uses it.

    Args:
        spec: the handler.
        app: the app's name.
        pickler: has `dumps` for what its processes run; not `pickle` where there is no main module to import.
        keeps_processes: whether its processes live on when a worker ends, for the next one.
    """

    __slots__ = ("breaker", "called", "dedup", "keeps_processes", "pace", "pickler", "processes", "spec", "specs")

    def __init__(
        self,
        spec: HandlerSpec,
        app: str,
        *,
        pickler: Any = pickle,
        keeps_processes: bool = False,
    ) -> None:
        self.spec = spec
        self.specs = [spec.at_step(app, step) for step in range(spec.retry.hops + 1)]
        """The handler on its source and on each of its retry topics."""
        self.called = on_all_steps(spec, app)
        """The handler with the functions that stand in for it on some steps."""
        self.pickler = pickler
        self.keeps_processes = keeps_processes
        self.breaker = BreakerState()
        self.pace = 0.0
        self.processes: ProcessRunner | None = None
        """Runs its processes, which wait for the next worker."""
        self.dedup: DedupClient | InlineClient | None = None
        """Its connection to a dedup store, made by this process."""

    def dedup_stage(self) -> Dedup | None:
        """What the calls of a worker go through; None when the handler has no store."""
        store: Any = self.spec.dedup
        if store is None:
            return None
        from laneway.dedup import DedupClient, HandlerDedup

        if store.in_order:
            stage: Dedup = store.stage(self.spec.scope, is_batch=self.spec.is_batch)
            return stage
        if self.dedup is None:
            self.dedup = DedupClient(store, self.spec.scope)
        return HandlerDedup(store, self.dedup, self.spec.scope)

    def close(self) -> None:
        """Let processes that wait clean up and end, and the connection to a dedup store."""
        client, self.dedup = self.dedup, None
        if client is not None:
            client.close()
        runner, self.processes = self.processes, None
        if runner is not None:
            runner.close()
