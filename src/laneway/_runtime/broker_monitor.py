"""BrokerMonitor: one thread asks the brokers of a cluster the regular questions; others read its view."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from laneway._kafka import MISSING, BrokerUnavailableError
from laneway._runtime.topics import create_beside
from laneway.errors import AdminError
from laneway.observe import logger

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from laneway._kafka import Admin, Place
    from laneway._runtime.due_offsets import DueOffsets
    from laneway._runtime.partition import Partition

__all__ = ["TIMEOUT", "BrokerMonitor", "BrokerView"]

_log = logger("kafka")

_EVERY = 2.0  # seconds between requests for the ends of the logs
TIMEOUT = 2.0
"""Seconds for an answer, so that an outage is known after two requests."""
_DUE = 0.1  # seconds between requests for due offsets; adds to the delay of a retry
_ABSENT = 1.0  # seconds before a request without an answer is repeated
_COUNT = 10.0  # seconds between counts of the brokers, for which all topics are listed
_GRACE = 2  # failed checks before a topic counts as missing; during a recreation it is gone for a moment
_AGAIN = 2.0  # seconds between checks of a topic that copies wait for
_FORGET = 60.0  # seconds for which the result is used


class HasAdmin(Protocol):
    @property
    def admin(self) -> Admin: ...


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The last answers of the brokers."""

    ends: Mapping[Place, int] = field(default_factory=dict)
    """The ends of the logs of owned partitions."""
    brokers: int | None = None
    """The number of brokers, when last counted."""
    code: str = ""
    """The code of a problem; empty when there is none."""
    text: str = ""
    since: float = 0.0
    """Since when the problem lasts, by the monotonic clock."""
    due: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    """For delayed topics: the epoch of a partition, and the offset up to which records are due."""


class BrokerMonitor:
    """Asks the brokers regularly, on its own thread. Any thread may read the view.

    The ends of owned partitions take one small request to each of their leaders. All topics are requested only when
    that fails, or to count the brokers.

    A deleted error topic is created again, like its source; retry topics are created by `DueOffsets`, which reports
    what is lost with one.
    """

    def __init__(
        self,
        clients: HasAdmin,
        owned: Mapping[Place, Partition | None],
        *,
        feeds: Sequence[DueOffsets] = (),
        sources: Collection[str] = (),
        errors: Mapping[str, str],
        may_create: bool,
        where: str = "",
    ) -> None:
        self._clients = clients
        self._owned = owned
        self._feeds = feeds
        self._sources = sources
        self._errors = errors
        self._may_create = may_create
        self._where = where
        self.view = BrokerView(since=time.monotonic())
        self.recreated: deque[tuple[str, Mapping[Place, int]]] = deque()
        """Retry topics that may have been recreated, and the old ends of their logs. Added before the view changes."""
        self.counts = False
        """Whether to count the brokers regularly."""
        self._counted = -_COUNT
        self._misses = 0
        self._is_regular = False
        self._look_at = self._due_at = 0.0
        """When to ask next for the ends, and for what is due."""
        self._topics: list[str] = []
        """Topics to check for problems."""
        self._found: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_over = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._is_regular = True
        self._begin()

    def end(self) -> None:
        """Stop asking, without waiting for an answer."""
        self._is_over = True
        self._wake.set()

    def trouble(self, topic: str) -> str:
        """The last known problem of a topic that copies wait for; it is checked again meanwhile."""
        now = time.monotonic()
        with self._lock:
            seen, text = self._found.get(topic, (-_FORGET, ""))
            if topic not in self._topics and now - seen >= _AGAIN:
                self._topics.append(topic)
                self._begin()
        return text if now - seen < _FORGET else ""

    def look(self) -> None:
        """Ask once for the ends and the brokers; takes some seconds when no broker answers."""
        found = self._looked()
        is_same = found.code == self.view.code
        self.view = replace(found, since=self.view.since if is_same else time.monotonic())

    def ask_due(self) -> bool:
        """Ask once for the due offsets of owned partitions; False when a broker did not answer."""
        found: dict[Place, tuple[int, int]] = {}
        is_answered = True
        for feeds in self._feeds:
            # Before the request, so that an answer is never about an older log than its epoch.
            asked = {
                place: part
                for place, part in tuple(self._owned.items())
                if part is not None and place[0] in feeds.delayed
            }
            if not asked:
                continue
            try:
                ends = feeds.ends({place: partition.position for place, partition in asked.items()})
            except BrokerUnavailableError:
                feeds.forget()  # a topic may have been deleted: the next look creates it again
                is_answered = False
                continue
            found |= {place: (partition.epoch, ends.get(place, 0)) for place, partition in asked.items()}
            while feeds.recreated:
                self.recreated.append(feeds.recreated.popitem())
        self.view = replace(self.view, due=found)
        return is_answered

    def ends(self) -> dict[Place, int]:
        """The ends of all records that are due now, in all partitions. Call it before `start`; it blocks.

        Raises:
            BrokerUnavailableError: no broker answered.
        """
        admin = self._clients.admin
        places = [(topic, partition) for topic in self._sources for partition in admin.partitions(topic)]
        found = admin.ends_of(places) if places else {}
        for feeds in self._feeds:
            found |= {place: end for place, end in feeds.ends({}).items() if place[0] in feeds.delayed}
        return found

    def restart(self, topic: str) -> None:
        """A source was recreated: discard when its ends were first seen."""
        for feeds in self._feeds:
            feeds.restart(topic)

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="laneway-monitor", daemon=True)
            self._thread.start()
        self._wake.set()

    def _work(self) -> None:
        while not self._is_over:
            try:
                self._look_at_topics()
                if self._is_regular:
                    self._ask_regularly()
            except Exception:  # noqa: BLE001 - what asks must not end the run, nor be silent
                _log.exception("the broker monitor failed; it continues")
                time.sleep(_EVERY)
            next_at = min(self._look_at, self._due_at) if self._feeds else self._look_at
            self._wake.wait(max(0.0, next_at - time.monotonic()) if self._is_regular else None)
            self._wake.clear()

    def _ask_regularly(self) -> None:
        if self._feeds and time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + _DUE
            if not self.ask_due():
                self._due_at = time.monotonic() + _ABSENT
                self._look_at = 0.0  # it says why
        if time.monotonic() >= self._look_at:
            self.look()
            self._look_at = time.monotonic() + _EVERY

    def _looked(self) -> BrokerView:
        places, admin, view = list(self._owned), self._clients.admin, self.view
        try:
            if places:
                view = replace(view, ends=admin.ends_of(places, TIMEOUT))
            self._misses = 0
            now = time.monotonic()
            if (self.counts or not places) and now - self._counted >= _COUNT:
                view = replace(view, brokers=admin.brokers(TIMEOUT))
                self._counted = now
        except AdminError as error:
            return self._diagnosed(view, error)
        return replace(view, code="", text="")

    def _diagnosed(self, view: BrokerView, error: AdminError) -> BrokerView:
        """Find the problem: no broker answers, a topic is missing, or a partition has no leader."""
        self._counted = -_COUNT
        try:
            topics = self._clients.admin.topics(TIMEOUT)
        except AdminError as absent:
            return replace(view, code="brokers-unreachable", text=f"no answer from Kafka at {self._where}: {absent}")
        missing = [topic for topic in self._sources if not topics.get(topic)]
        self._misses += 1
        if self._misses < _GRACE:
            return view
        if missing:
            return replace(view, code="topic-missing", text=f"there is no topic {', '.join(missing)} at {self._where}")
        text = f"no answer about partitions at {self._where}: {error}"
        return replace(view, code="partitions-unavailable", text=text)

    def _look_at_topics(self) -> None:
        for topic in list(self._topics):
            try:
                text = self._trouble_of(topic)
            except BrokerUnavailableError as error:
                text = f"no broker answers ({error})"
            except AdminError as error:
                text = str(error)
            with self._lock:
                self._found[topic] = (time.monotonic(), text)
                self._topics.remove(topic)

    def _trouble_of(self, topic: str) -> str:
        admin = self._clients.admin
        text = admin.trouble(topic)
        if text != MISSING or topic not in self._errors:
            return text
        if not self._may_create:
            return f"{MISSING}, and create_topics is false: create it"
        source = self._errors[topic]
        if create_beside(admin, topic, source, len(admin.partitions(source))):
            _log.warning("created topic %s again: it was deleted", topic)
        return "it was deleted and is created again"
