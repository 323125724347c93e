"""State: what an engine or a producer is doing."""

from __future__ import annotations

from enum import Enum

__all__ = ["State"]


class State(Enum):
    """The states of an engine, and of a producer."""

    INITIALISING = "initialising"
    """Waiting for brokers and topics."""
    STARTING = "starting"
    """Creating clients or a Spark session."""
    CONSUMING = "consuming"
    """Records are being handled."""
    PRODUCING = "producing"
    """A producer has reached its brokers."""
    PAUSING = "pausing"
    """Paused by request; calls in flight are still running."""
    PAUSED = "paused"
    """Paused, and no call runs except retries that were already scheduled."""
    STOPPING = "stopping"
    """Stopping: records in flight are finished and committed."""
    STOPPED = "stopped"
    """Stopped; after `stop_listening` it can be started again."""
    CLOSING = "closing"
    """Leaving the consumer group (direct), ending the queries (Spark), or flushing (a producer)."""
    CLOSED = "closed"
