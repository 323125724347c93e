"""Outbox: messages until they are acknowledged; Troubles: the topics that cannot be written to."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from laneway._core.events import short_text
from laneway.errors import MessageTooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laneway._core.events import EventEmitter
    from laneway._core.messages import CopyMessage, PendingMessage
    from laneway.observe import Tally
    from laneway.typing import Sender

__all__ = ["Delivery", "Generation", "Late", "Outbox", "Trouble", "Troubles"]

_CALM = 6.0  # seconds; what cannot be written is tried again after at most five
_NOTICE_EVERY = 10.0  # seconds between two notices of the same trouble
_SOON, _LATE = 0.002, 0.05  # seconds between looks for answers: while they come, and when none has come for long
_HOLDS_KEY = 0.5  # seconds that a copy may take before its key waits for it
_OVERDUE = 5.0  # seconds without an acknowledgement that are worth a warning; the client gives up much later
_ASK = 4.0  # seconds after which the reason is asked for, so that it is known by then
_GENERATION = 1.0  # seconds in which messages count as equally old
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0  # seconds between tries; longer and a healed topic would be noticed too late


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


Delivery = tuple["PendingMessage", Exception | None]
"""A message and the answer to it: None when every in-sync replica has it, else why not."""


@dataclass(frozen=True, slots=True)
class Late:
    """Messages that have waited for their acknowledgement for long."""

    topic: str
    count: int
    since: float
    """When the oldest of them was sent, by the clock of the polls."""
    reason: str
    """What is wrong with the topic; empty when nothing is known."""

    def words(self, now: float) -> str:
        """What waits, for how long, and why."""
        what = "1 copy or message" if self.count == 1 else f"{self.count:,} copies or messages"
        reason = f": {self.reason}" if self.reason else ""
        return f"{what} for {self.topic} not acknowledged for {now - self.since:.0f}s{reason}"


class Generation:
    """Messages that were sent within a second."""

    __slots__ = ("began", "messages")

    def __init__(self) -> None:
        self.began: float | None = None
        """When it was first looked at."""
        self.messages: set[PendingMessage] = set()

    def seen(self, now: float) -> None:
        """Its messages were sent since the last poll."""
        if self.began is None and self.messages:
            self.began = now


class Outbox:
    """Hands messages to a sender and returns the answers.

    Only its owner calls it. A message stays until the owner says that it is over.

    A broker refuses a whole request when one message in it is too large. So a message that was refused for its size
    while others were on their way to the same topic is sent again by itself, and only then reported as too large.

    Args:
        sender: where messages go.
        tally: where they are counted.
        events: reports tries that fail, and messages that wait.
    """

    def __init__(self, sender: Sender, tally: Tally, events: EventEmitter) -> None:
        self._sender = sender
        self._tally = tally
        self._events = events
        self._noticed = -_NOTICE_EVERY
        self._answers: deque[Delivery] = deque()
        self._later: list[tuple[float, int, PendingMessage]] = []
        self._order = count()
        self._on_way: dict[str, int] = {}
        self._alone: dict[str, PendingMessage | None] = {}
        """Topic to the one message on its way there, if no other was sent meanwhile."""
        self._in_turn: dict[str, deque[PendingMessage]] = {}
        """Topic to the messages that go there one after the other, because one of them is too large."""
        self._unawaited: deque[CopyMessage] = deque()
        self.pending = 0
        """Messages that are not over."""
        self.size = 0
        """Bytes of their keys and values."""
        self.pause = _SOON
        """Seconds until a look for answers is worth it: a small part of the time for which none has come."""
        self._generations: deque[Generation] = deque([Generation()])
        self._aged = 0.0
        self._said_late = -_NOTICE_EVERY
        self._said_reasons: set[str] = set()
        self.late: tuple[Late, ...] = ()
        """What has waited for more than five seconds, by topic; looked at once a second. Any thread may ask."""
        self.troubles = Troubles()
        self.diagnose: Callable[[str], str] = lambda _topic: ""
        """Says what is wrong with a topic, as far as it is known; it must not wait for an answer."""
        self._quiet_since: float | None = None
        """When an answer last came, or the first message left; None until the next look."""
        self.trouble: str | None = None
        """Why the newest failed try failed; None when nothing waits to be repeated."""

    def send(self, message: PendingMessage) -> None:
        """Send a message; a later `poll` returns the answer."""
        self._accept(message)
        self._send(message)

    def send_unawaited(self, copy: CopyMessage, now: float) -> None:
        """Send a copy for which no key waits; `late_copies` gives it when it takes too long."""
        copy.late_at = now + _HOLDS_KEY
        self.send(copy)
        self.watch(copy)

    def watch(self, copy: CopyMessage) -> None:
        """Let `late_copies` give a copy when it takes too long, if something orders its record."""
        if copy.key is not None:
            self._unawaited.append(copy)

    def poll(self, now: float) -> list[Delivery]:
        """What was answered."""
        if not self.pending:
            self.late = ()
            return []
        self._generations[-1].seen(now)
        if now - self._aged >= _GENERATION:
            self._aged = now
            self._look_for_late(now)
        self._sender.poll()
        if self._answers or self._quiet_since is None:
            self._quiet_since = now
        self.pause = min(_LATE, max(_SOON, (now - self._quiet_since) / 10))
        return self._taken_answers(now) if self._answers else []

    def send_due(self, now: float) -> None:
        """Send again what is due, once the deliveries of a poll were acted upon."""
        while self._later and self._later[0][0] <= now:
            self._send(heapq.heappop(self._later)[2])
        if self._in_turn:
            self._send_in_turn()
        if not self._later:
            self.trouble = None

    def late_copies(self, now: float) -> list[CopyMessage]:
        """Copies that no key waits for and that take too long; each is given once."""
        copies, late = self._unawaited, []
        while copies and (copies[0].is_over or copies[0].late_at <= now):
            copy = copies.popleft()
            if not copy.is_over:
                late.append(copy)
        return late

    def over(self, message: PendingMessage) -> None:
        """A message needs no further try; one that waits for it is sent."""
        message.generation.messages.discard(message)
        self.pending -= 1
        self.size -= message.size
        if message.next is not None:
            following, message.next = message.next, None
            self.send(following)

    def repeat(self, message: PendingMessage, error: Exception, now: float) -> None:
        """A try failed: make another one after a pause that grows with each."""
        topic = message.encoded[0]
        self._events.copy_failed(topic, error, message.tries)
        self.troubles.failed(topic, short_text(error), message.tries, now)
        self.trouble = f"cannot write to {topic}: {error}"
        if now - self._noticed >= _NOTICE_EVERY:
            self._noticed = now
            self._events.note(f"{self.trouble}; the records wait, and it is tried again")
        self._send_at(message, now + min(_FIRST_PAUSE * 2 ** min(message.tries - 1, 10), _LONGEST_PAUSE))

    def replace(self, message: PendingMessage, now: float) -> None:
        """Something else is to be sent in its place, at once."""
        self._send_at(message, now)

    def withdraw(self, messages: Iterable[PendingMessage]) -> None:
        """These are not to be sent again; those that are on their way are answered as usual."""
        gone = set(map(id, messages))
        self._later = [entry for entry in self._later if id(entry[2]) not in gone]
        heapq.heapify(self._later)
        for topic, waiting in self._in_turn.items():
            self._in_turn[topic] = deque(message for message in waiting if id(message) not in gone)

    def waiting(self) -> list[PendingMessage]:
        """The messages that could be withdrawn."""
        found = [message for *_, message in self._later]
        return [*found, *(message for waiting in self._in_turn.values() for message in waiting)]

    @property
    def next_wake(self) -> float | None:
        """When the next repeat is due."""
        return self._later[0][0] if self._later else None

    def _accept(self, message: PendingMessage) -> None:
        if not self.pending:
            self._quiet_since, self.pause = None, _SOON
            self._generations = deque([Generation()])
        message.generation = self._generations[-1]
        message.generation.messages.add(message)
        self.pending += 1
        self.size += message.size
        message.answers = self._answers

    def _send_at(self, message: PendingMessage, at: float) -> None:
        heapq.heappush(self._later, (at, next(self._order), message))

    def _send(self, message: PendingMessage) -> None:
        waiting = self._in_turn.get(message.encoded[0]) if self._in_turn else None
        if waiting is None:
            self._hand_over(message)
        else:
            waiting.append(message)

    def _send_in_turn(self) -> None:
        for topic, waiting in list(self._in_turn.items()):
            if not waiting:
                del self._in_turn[topic]
            elif not self._on_way.get(topic):
                self._hand_over(waiting.popleft())

    def _hand_over(self, message: PendingMessage) -> None:
        topic, key, value, headers, partition, timestamp = message.encoded
        on_way = self._on_way.get(topic, 0)
        self._on_way[topic] = on_way + 1
        self._alone[topic] = None if on_way else message
        try:
            self._sender.send(
                topic,
                key=key,
                value=value,
                headers=headers,
                partition=partition,
                timestamp=timestamp,
                delivered=message.answered,
            )
        except (TypeError, ValueError) as error:
            # A key or header that no client takes is a failure of its record, not of the run.
            message.answered(error)

    def _taken_answers(self, now: float) -> list[Delivery]:
        answers, on_way, tally = self._answers, self._on_way, self._tally
        deliveries: list[Delivery] = []
        while answers:
            delivery = answers.popleft()
            message, error = delivery
            topic = message.encoded[0]
            on_way[topic] -= 1
            if error is None:
                tally.produced += 1
                if self.troubles:
                    self.troubles.landed(topic, now)
            else:
                tally.undelivered += 1
                if isinstance(error, MessageTooLargeError) and self._alone[topic] is not message:
                    self._in_turn.setdefault(topic, deque()).append(message)
                    continue
                message.tries += 1
            deliveries.append(delivery)
        return deliveries

    def _look_for_late(self, now: float) -> None:
        """Find out how old the oldest messages are."""
        generations = self._generations
        while len(generations) > 1 and not generations[0].messages:
            generations.popleft()
        newest = generations[-1]
        if newest.began is not None and now - newest.began >= _GENERATION:
            generations.append(Generation())
        found: dict[str, tuple[int, float]] = {}
        for generation in generations:
            if generation.began is None or now - generation.began < _ASK:
                break
            for message in generation.messages:
                number, since = found.get(message.encoded[0], (0, generation.began))
                found[message.encoded[0]] = (number + 1, since)
        every = [Late(topic, *what, self.diagnose(topic)) for topic, what in found.items()]
        self.late = tuple(late for late in every if now - late.since >= _OVERDUE)
        reasons = {late.reason for late in self.late if late.reason}
        # A reason that was found after the last notice does not wait for the next one.
        if self.late and (now - self._said_late >= _NOTICE_EVERY or not reasons <= self._said_reasons):
            self._said_late, self._said_reasons = now, reasons
            self._events.note("; ".join(f"{late.words(now)}; the records wait" for late in self.late))
