"""What is wrong with a topic, according to its metadata."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaException

__all__ = ["MISSING", "TopicLook", "trouble_of"]

_ASK, _ANSWER = 1.0, 0.5  # seconds between requests for a topic, and for the answer: other messages wait for it

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


class TopicLook:
    """Asks what is wrong with topics, each at most once a second. One thread uses it."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[float, str]] = {}

    def look(self, client: Any, topic: str) -> str:
        """What is wrong. The request also makes the client notice new partitions minutes earlier.

        Args:
            client: a producer.
            topic: which one.
        """
        now = time.monotonic()
        asked, found = self._asked.get(topic, (-_ASK, ""))
        if now - asked < _ASK:
            return found
        try:
            found = trouble_of(client.list_topics(topic, timeout=_ANSWER).topics[topic])
        except KafkaException:
            found = "no broker answers"
        self._asked[topic] = (now, found)
        return found
