"""What is wrong with a topic, according to its metadata."""

from __future__ import annotations

from typing import Any

__all__ = ["MISSING", "trouble_of"]

MISSING = "there is no such topic"


def trouble_of(state: Any) -> str:
    """A sentence; empty when nothing is wrong."""
    if state is None or (state.error is None and not state.partitions):
        return MISSING
    if state.error is not None:
        return MISSING if state.error.name() == "UNKNOWN_TOPIC_OR_PART" else str(state.error.str())
    headless = [part.id for part in state.partitions.values() if part.leader < 0]
    if headless:
        return f"partition {headless[0]} has no leader"
    counts = [(len(part.isrs), len(part.replicas)) for part in state.partitions.values()]
    few = min((count for count in counts if count[0] < count[1]), default=None)
    return f"{few[0]} of {few[1]} replicas are in sync" if few else ""
