"""What both engines ask of their clients and loops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laneway._declare.handler import HandlerSpec
    from laneway.settings import ClusterSettings

__all__ = ["new_loop", "reading_options"]


def new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop: uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()  # type: ignore[no-any-return]


def reading_options(
    cluster: ClusterSettings, routes: list[HandlerSpec], partitions: int, readers: int = 1
) -> dict[str, Any]:
    """Options of a consumer that reads for handlers.

    librdkafka limits its prefetch per partition; the buffer of a handler is for all partitions of one client.

    Args:
        cluster: the cluster.
        routes: the handlers.
        partitions: the number of partitions.
        readers: the number of clients that share them.
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
