"""Clients of a producer: one for each cluster and each way of writing, watched from one thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from laneway._declare.health import Health, Level, Reason, moment
from laneway._declare.state import State
from laneway._kafka import MISSING
from laneway.errors import ProduceError
from laneway.observe import logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laneway._kafka import Answered, Encoded
    from laneway.settings import MessageRoute

__all__ = ["Client", "Clients", "Connect"]

_log = logger("producer")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0  # seconds between tries to reach the brokers, and between looks afterwards
_ANSWER = 3.0  # seconds for brokers to answer a look


class Client(Protocol):
    """Sends messages to one cluster, in one way. Any thread may call it."""

    def __len__(self) -> int:
        """How many messages have no answer yet."""
        ...

    def send(self, message: Encoded, answered: Answered) -> None:
        """Send a message; waits while the buffer is full."""
        ...

    def send_all(self, messages: Iterable[Any], answered: Callable[[Any, Any], None]) -> int:
        """Send many messages with one callback for all, and give their number."""
        ...

    def failed(self, topic: str, error: Any, answered: Answered) -> None:
        """Turn a client's own error into one that says more, and pass it on."""
        ...

    def flush(self, timeout: float) -> int:
        """Wait until every message has its answer; returns how many have none."""
        ...

    def topics(self, timeout: float) -> dict[str, str]:
        """The topics of the cluster, each with what is wrong with it."""
        ...

    def close(self, timeout: float) -> None:
        """Flush, and fail what has no answer by then."""
        ...


Connect = Callable[["MessageRoute"], Client]
"""Makes the client for a route."""


class Clients:
    """Makes clients when they are first needed, and knows how they are. Any thread may call it.

    Args:
        connect: makes a client; it needs no broker for that.
        has_thread: whether a thread looks at the brokers; otherwise `state` and `health` look when they are asked.
    """

    def __init__(self, connect: Connect, *, has_thread: bool = True) -> None:
        self._has_thread = has_thread
        self._connect = connect
        self._clients: dict[str, Client] = {}
        self._topics: dict[str, set[str]] = {}
        self._troubles: dict[str, tuple[float, str]] = {}
        """Client to since when it does not reach its brokers, and why."""
        self._faults: dict[tuple[str, str], tuple[float, str]] = {}
        """Client and topic to since when something is wrong with the topic, and what."""
        self._looked: set[str] = set()
        self._state = State.INITIALISING
        self._condition = threading.Condition()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def state(self) -> State:
        """The state now: producing when every cluster in use has answered once."""
        if not self._has_thread:
            self._look_at_all()
        return self._state

    def client(self, route: MessageRoute) -> Client:
        """The client for a route.

        Raises:
            ProduceError: everything was closed.
        """
        with self._condition:
            if self._state in (State.CLOSING, State.CLOSED):
                raise ProduceError("the producer is closed")
            client = self._clients.get(route.client)
            if client is None:
                client = self._clients[route.client] = self._connect(route)
                self._topics[route.client] = set()
            if route.topic and route.topic not in self._topics[route.client]:
                self._topics[route.client].add(route.topic)
                self._wake.set()
            if self._thread is None and self._has_thread:
                self._thread = threading.Thread(target=self._watch, name="laneway-producer-watch", daemon=True)
                self._thread.start()
        return client

    def wait_for(self, state: State, timeout: float | None) -> bool:
        """Wait for a state; False when it did not come in time."""
        with self._condition:
            return self._condition.wait_for(lambda: self._state is state, timeout)

    def health(self) -> Health:
        """What the last look at the brokers found, and messages that wait."""
        if self.state is not State.PRODUCING and not self._troubles:
            return Health.of([Reason(Level.OK, self._state.value, f"the producer is {self._state.value}", moment(0))])
        now, reasons = time.monotonic(), []
        for name, (since, why) in list(self._troubles.items()):
            words = f"the brokers of cluster {name.partition('/')[0]} do not answer: {why}"
            reasons.append(Reason(Level.CRITICAL, "brokers-unreachable", words, moment(now - since)))
        for (name, topic), (since, why) in list(self._faults.items()):
            where = f"topic {topic} on cluster {name.partition('/')[0]}"
            level, code = (Level.WARNING, "topic-missing") if why == MISSING else (Level.WARNING, "topic-trouble")
            reasons.append(Reason(level, code, f"{where}: {why}", moment(now - since)))
        return Health.of(reasons)

    def pending(self) -> int:
        """How many messages have no answer yet."""
        return sum(map(len, list(self._clients.values())))

    def flush(self, timeout: float) -> int:
        """Wait until every message has its answer, at most *timeout* seconds; returns how many have none."""
        end = time.monotonic() + timeout
        return sum(client.flush(max(0.0, end - time.monotonic())) for client in list(self._clients.values()))

    def close(self, timeout: float) -> None:
        """Flush and end all clients; later calls do nothing."""
        with self._condition:
            if self._state in (State.CLOSING, State.CLOSED):
                return
            self._enter(State.CLOSING)
        end = time.monotonic() + timeout
        for client in self._clients.values():
            client.close(max(0.0, end - time.monotonic()))
        self._enter(State.CLOSED)
        self._wake.set()

    def _enter(self, state: State) -> None:
        with self._condition:
            self._state = state
            self._condition.notify_all()

    def _watch(self) -> None:
        """Look at the brokers: at the start with growing pauses until they answer, then regularly."""
        pause = _FIRST_PAUSE
        while self._state not in (State.CLOSING, State.CLOSED):
            self._wake.clear()
            self._look_at_all()
            pause = min(2 * pause, _LONGEST_PAUSE) if self._troubles else _LONGEST_PAUSE
            self._wake.wait(pause)

    def _look_at_all(self) -> None:
        for name, client in list(self._clients.items()):
            self._look(name, client)
        with self._condition:
            if self._state is State.INITIALISING and self._looked >= self._clients.keys():
                self._enter(State.PRODUCING)

    def _look(self, name: str, client: Client) -> None:
        now = time.monotonic()
        try:
            found = client.topics(_ANSWER)
        except ProduceError as error:
            if name not in self._troubles:
                _log.warning("a producer waits for the brokers of cluster %s: %s", name.partition("/")[0], error)
            since = self._troubles.get(name, (now, ""))[0]
            self._troubles[name] = (since, str(error))
            return
        if self._troubles.pop(name, None) is not None:
            _log.info("a producer has reached the brokers of cluster %s", name.partition("/")[0])
        self._looked.add(name)
        for topic in list(self._topics[name]):
            why = found.get(topic, MISSING)
            if not why:
                self._faults.pop((name, topic), None)
            else:
                since = self._faults.get((name, topic), (now, ""))[0]
                self._faults[name, topic] = (since, why)
