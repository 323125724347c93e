"""Care: what is wrong with a topic that copies wait for; an error topic that was deleted is created again."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from laneway._kafka import MISSING, BrokerUnavailableError
from laneway._runtime.topics import create_beside, say
from laneway.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laneway._kafka import Admin

__all__ = ["Care"]

_AGAIN = 2.0  # seconds between two looks at a topic
_FORGET = 60.0  # seconds for which what was found is believed


class Care:
    """Looks at topics on threads of its own, so that the caller does not wait. Any thread may call it.

    Error topics are created again here. Retry topics are not: `Feeds` does that, which also tells what is lost.

    Args:
        admin: gives what asks the brokers; called on the threads.
        errors: error topic to the topic whose records are parked there.
        may_create: whether topics may be created.
    """

    def __init__(self, admin: Callable[[], Admin], errors: Mapping[str, str], *, may_create: bool) -> None:
        self._admin = admin
        self._errors = errors
        self._may_create = may_create
        self._asked: dict[str, float] = {}
        self._found: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def trouble(self, topic: str) -> str:
        """What is wrong with a topic, as it was found last; it is looked at meanwhile."""
        now = time.monotonic()
        with self._lock:
            if now - self._asked.get(topic, -_AGAIN) >= _AGAIN:
                self._asked[topic] = now + _FORGET  # not again before the answer is here
                threading.Thread(target=self._look, args=(topic,), name="laneway-care", daemon=True).start()
            seen, words = self._found.get(topic, (now, ""))
        return words if now - seen < _FORGET else ""

    def _look(self, topic: str) -> None:
        try:
            words = self._looked_at(topic)
        except BrokerUnavailableError as error:
            words = f"no broker answers ({error})"
        except AdminError as error:
            words = str(error)
        with self._lock:
            self._asked[topic] = time.monotonic()
            self._found[topic] = (time.monotonic(), words)

    def _looked_at(self, topic: str) -> str:
        admin = self._admin()
        words = admin.trouble(topic)
        if words != MISSING or topic not in self._errors:
            return words
        if not self._may_create:
            return f"{MISSING}, and create_topics is false: create it"
        source = self._errors[topic]
        if create_beside(admin, topic, source, len(admin.partitions(source))):
            say(f"created topic {topic} again: it had been deleted")
        return "it had been deleted and is created again"
