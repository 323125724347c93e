"""What both engines ask of their clients and loops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laneway._route import Route

__all__ = ["new_loop", "prefetch"]


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop for async handlers: the faster one where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()  # type: ignore[no-any-return]


def prefetch(routes: list[Route], partitions: int, readers: int = 1) -> dict[str, Any]:
    """Bound what a client reads ahead: its limits are per partition, ours is for all that one reader reads.

    Args:
        routes: the handlers.
        partitions: how many partitions there are.
        readers: how many clients share them.
    """
    share = max(1, -(-partitions // readers))
    size = max(int(route.buffer.size) for route in routes)
    records = max(route.buffer.records for route in routes)
    return {
        "queued.min.messages": max(100, records // share),
        "queued.max.messages.kbytes": max(1024, size // 1024 // share),
        # A fetch may pass the queue's bound by its whole size, and small records take three times their bytes there.
        "fetch.message.max.bytes": 1 << 20,
    }
