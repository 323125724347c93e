"""State: what an engine or a producer is doing."""

from __future__ import annotations

from enum import Enum

__all__ = ["State"]


class State(Enum):
    """The states that an engine or a producer goes through."""

    INITIALISING = "initialising"
    """Waiting for brokers and topics."""
    STARTING = "starting"
    """Clients or a Spark session are being made."""
    CONSUMING = "consuming"
    """Records are being handled."""
    PRODUCING = "producing"
    """A producer has reached its brokers."""
    PAUSING = "pausing"
    """Asked to handle nothing for now, while what was read is still handled."""
    PAUSED = "paused"
    """Asked to handle nothing for now, and nothing runs but tries that had been put off."""
    STOPPING = "stopping"
    """Asked to stop: what runs is finished and committed."""
    STOPPED = "stopped"
    """Nothing runs; after `stop_listening` it may be started again."""
    CLOSING = "closing"
    """Ending its work: on the direct engine it leaves the consumer group, on Spark the queries end."""
    CLOSED = "closed"
    """Nothing runs, because it was closed."""
