"""FakeStores: the stores of handled records of apps that run in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway.dedup import InlineClient, MemoryDedup

if TYPE_CHECKING:
    from laneway._declare.handler import HandlerSpec
    from laneway.testing._clock import FakeClock

__all__ = ["FakeStores"]


class FakeStores:
    """Gives handlers a store whose leases end in virtual time.

    In place of Redis there is memory, which lasts as long as the fake Kafka. SQL stores are the real ones, because
    their handlers write to the same database.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._stores: dict[str, Any] = {}
        self._clients: dict[str, list[InlineClient]] = {}

    def client(self, spec: HandlerSpec) -> InlineClient | None:
        """The client of a member; None when the handler has no store, or one that needs none."""
        declared: Any = spec.dedup
        if declared is None or declared.in_order:
            return None
        if isinstance(declared, MemoryDedup):
            declared.clock = self._clock.wall
            store: Any = declared
        elif hasattr(declared, "transaction"):
            store = declared
        else:
            memory = MemoryDedup(clock=self._clock.wall, ttl=declared.ttl, lease=declared.lease)
            store = self._stores.setdefault(spec.scope, memory)
        return InlineClient(store, spec.scope, self._clients.setdefault(spec.scope, []))
