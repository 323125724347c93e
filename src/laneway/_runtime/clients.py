"""What both engines ask of their clients and loops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laneway._declare.handler import HandlerSpec
    from laneway.settings import ClusterSettings

__all__ = ["new_loop", "reading_options"]


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop for async handlers: the faster one where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()  # type: ignore[no-any-return]


def reading_options(
    cluster: ClusterSettings, routes: list[HandlerSpec], partitions: int, readers: int = 1
) -> dict[str, Any]:
    """Options of a client that reads for handlers.

    librdkafka's limits of what is read ahead are per partition; ours are for all partitions that one client reads.

    Args:
        cluster: where it reads.
        routes: the handlers.
        partitions: how many partitions there are.
        readers: how many clients share them.
    """
    share = max(1, -(-partitions // readers))
    records = max(route.buffer.records for route in routes)
    if cluster.consumer.buffer_size is not None:
        size = max(1, cluster.consumer.buffer_size // 1024 // share)
    else:
        size = max(1024, max(int(route.buffer.size) for route in routes) // 1024 // share)
    return {
        **cluster.consumer_options(),
        "queued.min.messages": max(100, records // share),
        "queued.max.messages.kbytes": size,
    }
