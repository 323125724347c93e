"""Troubles: the topics that an outbox cannot write to at the moment."""

from __future__ import annotations

import msgspec

__all__ = ["Trouble", "Troubles"]

_CALM = 6.0  # seconds; what cannot be written is tried again after at most five


class Trouble(msgspec.Struct, frozen=True):
    """A topic that cannot be written to. Plain values: it may come from another process."""

    topic: str
    error: str
    tries: int
    seconds: float
    """How long that has been so."""


class _Failing:
    """What is known of one topic."""

    __slots__ = ("error", "landed", "last", "since", "tries")

    def __init__(self, since: float) -> None:
        self.since = self.last = since
        self.landed = 0.0
        self.error, self.tries = "", 0


class Troubles:
    """Remembers which topics refused messages, until they take them again. Its owner reports tries; any thread may ask.

    A try may be under way of which nothing is known yet, so one that failed counts until a later one has landed.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _Failing] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._topics)

    def failed(self, topic: str, error: str, tries: int, now: float) -> None:
        """A try failed."""
        found = self._topics.setdefault(topic, _Failing(now))
        found.last, found.error, found.tries = now, error, max(found.tries, tries)

    def landed(self, topic: str, now: float) -> None:
        """A message was acknowledged."""
        found = self._topics.get(topic)
        if found is not None:
            found.landed = now

    def now(self, now: float, *, is_pending: bool, timeout: float) -> list[Trouble]:
        """The topics that cannot be written to now; those that can are forgotten.

        Args:
            now: the time.
            is_pending: whether any message waits to be acknowledged.
            timeout: seconds that a try may take.
        """
        found = []
        for topic, failing in list(self._topics.items()):
            quiet = now - failing.last
            is_over = (failing.landed > failing.last and quiet > _CALM) or quiet > timeout + 2 * _CALM
            if not is_pending or is_over:
                self._topics.pop(topic, None)
            else:
                found.append(Trouble(topic, failing.error, failing.tries, now - failing.since))
        return found
