"""Outbox: messages and parked copies on their way. A record is finished when the last of them is acknowledged."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from laneway.errors import MessageTooLargeError, ProduceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway._core.result import Posted
    from laneway._declare.record import Headers, Record
    from laneway.observe import Tally
    from laneway.typing import Sender

__all__ = ["Late", "Letter", "Outbox"]

_NOTICE_EVERY = 10.0  # seconds between two notices of the same trouble
_SOON, _LATE = 0.002, 0.05  # seconds between looks for answers: while they come, and when none has come for long
_IN_VAIN = 0.01  # seconds between looks by when a hurry has not helped: there is something wrong with the broker
_TOGETHER = 0.1  # seconds for which letters are collected: a request costs far more than a letter in it
_WITHDRAWN = ProduceError("its records are no longer ours")
_OVERDUE = 5.0  # seconds without an acknowledgement that are worth a warning; the client gives up much later
_ASK = 4.0  # seconds after which the reason is asked for, so that it is known by then
_GENERATION = 1.0  # seconds in which letters count as equally old
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0  # seconds between tries; longer and a healed topic would be noticed too late


@dataclass(frozen=True, slots=True)
class Late:
    """Letters that have waited for their acknowledgement for long."""

    topic: str
    count: int
    since: float
    """When the oldest of them was posted, by the clock of the ticks."""
    reason: str
    """What is wrong with the topic; empty when nothing is known."""

    def words(self, now: float) -> str:
        """What waits, for how long, and why."""
        what = "1 copy or message" if self.count == 1 else f"{self.count:,} copies or messages"
        reason = f": {self.reason}" if self.reason else ""
        return f"{what} for {self.topic} not acknowledged for {now - self.since:.0f}s{reason}"


class _Generation:
    """Letters that were posted within a second."""

    __slots__ = ("began", "letters")

    def __init__(self) -> None:
        self.began: float | None = None
        """When it was first looked at."""
        self.letters: set[Letter] = set()

    def seen(self, now: float) -> None:
        """Its letters were posted since the last tick."""
        if self.began is None and self.letters:
            self.began = now


class Letter(ABC):
    """One message until its fate is known."""

    __slots__ = ("answers", "generation", "is_changed", "posted", "size", "tries")

    answers: deque[tuple[Letter, Exception | None]]
    """Where the answer goes to; the outbox that it is posted with says so."""
    generation: _Generation
    """Tells how long it has waited."""

    def __init__(self, posted: Posted) -> None:
        self.posted = posted
        self.tries = 0
        self.is_changed = False
        """Something else is sent in its place, for which nothing has to be waited."""
        self.size = _length(posted[1]) + _length(posted[2])
        """Bytes of key and value as it was posted: what is sent in its place may be smaller."""

    def headers(self) -> Headers:
        """Those that are sent. A kind of which many wait at once may make them anew for each try: they are large."""
        headers: Headers = self.posted[3]
        return headers

    def heard(self, error: Exception | None) -> None:
        """Its fate is known. It is acted upon at the next tick, not inside of the sender."""
        self.answers.append((self, error))

    @abstractmethod
    def landed(self) -> None:
        """Called once, when the message is acknowledged by all in-sync replicas."""

    @property
    def records(self) -> Sequence[Record[Any]]:
        """What led to it."""
        return ()

    def withdrawn(self) -> None:  # noqa: B027 - for most there is nothing to do
        """Called instead when it is not sent, because its records are another process's by now."""

    @abstractmethod
    def undeliverable(self, error: Exception) -> bool:
        """Called when a try failed; True when it is taken care of in another way and is not to be repeated."""


class Outbox:
    """Hands letters to a sender and repeats those that fail, for ever, with growing pauses.

    Only the runner's own thread calls it. Nothing here gives up, because what waits for a letter would be lost.

    A broker refuses a whole request when one message in it is too large. So a letter that was refused for its size
    while others were on their way to the same topic is sent again by itself, and only then believed to be too large.
    """

    def __init__(
        self,
        sender: Sender,
        tally: Tally,
        notice: Callable[[str], None] | None = None,
        failed: Callable[[str, Exception, int], None] | None = None,
    ) -> None:
        self._sender = sender
        self._tally = tally
        self._notice = notice
        self._failed = failed
        self._noticed = -_NOTICE_EVERY
        self._answers: deque[tuple[Letter, Exception | None]] = deque()
        self._later: list[tuple[float, int, Letter]] = []
        self._collected: list[Letter] = []
        self._collecting_since: float | None = None
        self._order = count()
        self._on_way: dict[str, int] = {}
        self._alone: dict[str, Letter | None] = {}
        """Topic to the one letter on its way there, if no other was sent meanwhile."""
        self._in_turn: dict[str, deque[Letter]] = {}
        """Topic to the letters that go there one after the other, because one of them is too large."""
        self.pending = 0
        """Letters not yet acknowledged."""
        self.size = 0
        """Bytes of their keys and values."""
        self.pause = _SOON
        """Seconds until a look for answers is worth it: a small part of the time for which none has come."""
        self.landed: Callable[[], None] = lambda: None
        """Called when every answer of a tick was acted upon."""
        self.is_void: Callable[[Letter], bool] = lambda _: False
        """Whether a letter is not to be sent any more."""
        self._generations: deque[_Generation] = deque([_Generation()])
        self._aged = 0.0
        self._said_late = -_NOTICE_EVERY
        self.late: tuple[Late, ...] = ()
        """What has waited for more than five seconds, by topic; looked at once a second. Any thread may ask."""
        self.diagnose: Callable[[str], str] = lambda _topic: ""
        """Says what is wrong with a topic, as far as it is known; it must not wait for an answer."""
        self._quiet_since: float | None = None
        """When an answer last came, or the first letter left; None until the next look."""
        self.trouble: str | None = None
        """Why the newest failed try failed; None when nothing waits to be repeated."""

    def post(self, letter: Letter) -> None:
        """Send a letter; its `landed` is called inside a later `tick`."""
        self._accept(letter)
        self._send(letter)

    def collect(self, letter: Letter) -> None:
        """Send a letter for which no key waits: a little later, together with others, while there is other work."""
        self._accept(letter)
        self._collected.append(letter)

    def tick(self, now: float, *, is_idle: bool = True, is_awaited: bool = False) -> None:
        """Run callbacks, act on the answers, repeat what is due.

        Args:
            now: the time.
            is_idle: there is nothing to do meanwhile, so no letter is collected any longer.
            is_awaited: nor will there be, so no letter is to wait in the sender for others that might go with it.
        """
        if not self.pending:
            self.late = ()
            return
        self._generations[-1].seen(now)
        if now - self._aged >= _GENERATION:
            self._aged = now
            self._look_for_late(now)
        if self._collected:
            self._send_collected(now, is_idle=is_idle)
        if is_awaited and self.pause < _IN_VAIN:
            self._sender.hurry()
        else:
            self._sender.poll()
        if self._answers or self._quiet_since is None:
            self._quiet_since = now
        self.pause = min(_LATE, max(_SOON, (now - self._quiet_since) / 10))
        if self._answers:
            self._act_on_answers(now)
        while self._later and self._later[0][0] <= now:
            self._send(heapq.heappop(self._later)[2])
        if self._in_turn:
            self._send_in_turn()
        if not self._later:
            self.trouble = None

    @property
    def next_wake(self) -> float | None:
        """When the next repeat is due, or what is collected."""
        repeat = self._later[0][0] if self._later else None
        if not self._collected:
            return repeat
        sent = 0.0 if self._collecting_since is None else self._collecting_since + _TOGETHER
        return sent if repeat is None else min(sent, repeat)

    def _accept(self, letter: Letter) -> None:
        if not self.pending:
            self._quiet_since, self.pause = None, _SOON
            self._generations = deque([_Generation()])
        letter.generation = self._generations[-1]
        letter.generation.letters.add(letter)
        self.pending += 1
        self.size += letter.size
        letter.answers = self._answers

    def _send_collected(self, now: float, *, is_idle: bool) -> None:
        if self._collecting_since is None:
            self._collecting_since = now
        if is_idle or now - self._collecting_since >= _TOGETHER:
            collected, self._collected, self._collecting_since = self._collected, [], None
            for letter in collected:
                self._send(letter)

    def _send(self, letter: Letter) -> None:
        waiting = self._in_turn.get(letter.posted[0]) if self._in_turn else None
        if waiting is None:
            self._hand_over(letter)
        else:
            waiting.append(letter)

    def _send_in_turn(self) -> None:
        for topic, waiting in list(self._in_turn.items()):
            if not waiting:
                del self._in_turn[topic]
            elif not self._on_way.get(topic):
                self._hand_over(waiting.popleft())

    def _hand_over(self, letter: Letter) -> None:
        topic, key, value, _, partition, timestamp = letter.posted
        on_way = self._on_way.get(topic, 0)
        self._on_way[topic] = on_way + 1
        self._alone[topic] = None if on_way else letter
        if self.is_void(letter):
            letter.heard(_WITHDRAWN)  # what waits for it goes on at the next tick, not inside of this call
            return
        try:
            self._sender.send(
                topic,
                key=key,
                value=value,
                headers=letter.headers(),
                partition=partition,
                timestamp=timestamp,
                delivered=letter.heard,
            )
        except (TypeError, ValueError) as error:
            # A key or header that no client takes is a failure of its record, not of the run.
            letter.heard(error)

    def _act_on_answers(self, now: float) -> None:
        answers, on_way = self._answers, self._on_way
        while answers:
            letter, error = answers.popleft()
            on_way[letter.posted[0]] -= 1
            if error is None:
                self._gone(letter)
                self._tally.produced += 1
                letter.landed()
            elif error is _WITHDRAWN:
                self._gone(letter)
                letter.withdrawn()
            else:
                self._not_delivered(letter, error, now)
        self.landed()

    def _not_delivered(self, letter: Letter, error: Exception, now: float) -> None:
        topic = letter.posted[0]
        self._tally.undelivered += 1
        if isinstance(error, MessageTooLargeError) and self._alone[topic] is not letter:
            self._in_turn.setdefault(topic, deque()).append(letter)
            return
        letter.tries += 1
        letter.is_changed = False
        if letter.undeliverable(error):
            self._gone(letter)
            return
        if letter.is_changed:
            heapq.heappush(self._later, (now, next(self._order), letter))
            return
        if self._failed is not None:
            self._failed(letter.posted[0], error, letter.tries)
        self.trouble = f"cannot write to {letter.posted[0]}: {error}"
        if self._notice is not None and now - self._noticed >= _NOTICE_EVERY:
            self._noticed = now
            self._notice(f"{self.trouble}; the records wait, and it is tried again")
        pause = min(_FIRST_PAUSE * 2 ** min(letter.tries - 1, 10), _LONGEST_PAUSE)
        heapq.heappush(self._later, (now + pause, next(self._order), letter))

    def _look_for_late(self, now: float) -> None:
        """Find out how old the oldest letters are."""
        generations = self._generations
        while len(generations) > 1 and not generations[0].letters:
            generations.popleft()
        newest = generations[-1]
        if newest.began is not None and now - newest.began >= _GENERATION:
            generations.append(_Generation())
        found: dict[str, tuple[int, float]] = {}
        for generation in generations:
            if generation.began is None or now - generation.began < _ASK:
                break
            for letter in generation.letters:
                number, since = found.get(letter.posted[0], (0, generation.began))
                found[letter.posted[0]] = (number + 1, since)
        told = [Late(topic, *what, self.diagnose(topic)) for topic, what in found.items()]
        self.late = tuple(late for late in told if now - late.since >= _OVERDUE)
        if self.late and self._notice is not None and now - self._said_late >= _NOTICE_EVERY:
            self._said_late = now
            self._notice("; ".join(f"{late.words(now)}; the records wait" for late in self.late))

    def _gone(self, letter: Letter) -> None:
        letter.generation.letters.discard(letter)
        self.pending -= 1
        self.size -= letter.size


def is_hopeless(error: Any) -> bool:
    """Whether repeating the same message cannot help."""
    return isinstance(error, (MessageTooLargeError, TypeError, ValueError))


def _length(part: Any) -> int:
    return len(part) if isinstance(part, (bytes, str)) else 0
