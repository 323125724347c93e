"""Watch: looks once a second at what could hold an app up, and says how it is doing."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from laneway._declare.health import Health, Level, Reason, Stall, lasting, moment
from laneway._declare.units import in_words
from laneway._engines.direct.progress import Progress
from laneway._engines.direct.stalls import Heard, breaker_words
from laneway._runtime.lifecycle import State
from laneway.events import PartitionsAssigned, PartitionsRevoked
from laneway.observe import logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laneway._engines.direct.check import HealthCheck
    from laneway._engines.direct.crew import Crew
    from laneway._runtime.handler_worker import HandlerWorker
    from laneway._runtime.lifecycle import Lifecycle
    from laneway._runtime.status_file import StatusFile
    from laneway.events import Event

__all__ = ["Watch"]

_log = logger("direct")

_EVERY = 1.0  # seconds between looks
_NOTED = 12.0  # seconds that a notice stays in the state: one of something that lasts is repeated after ten
_SOON = timedelta(seconds=2)  # a group that is at rest gives partitions sooner
_IDLE = ("no-partitions", "spare")
_SHOWN = 10  # stalled partitions that are reasons of their own
_AT_WORK = (State.CONSUMING, State.PAUSING, State.PAUSED, State.STOPPING)
_WORDS = {
    State.STARTING: "it is starting",
    State.STOPPING: "it is stopping",
    State.STOPPED: "nothing runs",
    State.CLOSING: "it is leaving its group",
    State.CLOSED: "it is closed",
}


class Watch:
    """Knows how an engine is doing. Any thread may ask, at any time; nothing here is on the way of a record.

    A thread of its own looks at the lowest unfinished offset of each partition. What is computed is only about
    partitions that are ours at that moment.

    Args:
        life: the engine's state.
    """

    def __init__(self, life: Lifecycle) -> None:
        self._life = life
        self.stalled_after = 30.0
        """Seconds for which a partition may stand still."""
        self.minimum_brokers = 1
        """How many brokers there should be."""
        self._noted = ("", 0.0)
        self._waits = ""
        """What the state says of partitions that do not come."""
        self._crews: Sequence[tuple[Crew, Progress]] = ()
        self._check: HealthCheck | None = None
        self._status: StatusFile | None = None
        self._heard = Heard()
        self._since: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_complained = False

    def begin(self, status: StatusFile | None) -> None:
        """Watch from now on, and say in a file what is seen."""
        self._is_over, self._status = threading.Event(), status
        self._heard, self._noted, self._since = Heard(), ("", 0.0), {}  # of this run only
        self._thread = threading.Thread(target=self._repeat, args=(self._is_over,), name="laneway-watch", daemon=True)
        self._thread.start()

    def attend(self, crews: Sequence[Crew], check: HealthCheck | None) -> None:
        """Watch these too."""
        with self._lock:
            self._check = check
            self._crews = [(crew, Progress(crew, self._heard, lambda: self._is_paused)) for crew in crews]
        for crew in crews:
            crew.monitor.counts = self.minimum_brokers > 1

    def end(self) -> None:
        """Watch nothing more."""
        self._is_over.set()
        with self._lock:
            self._crews, self._check = (), None
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1)
        if self._status is not None:
            self._status.remove()

    def hear(self, event: Event) -> None:
        """Learn from an event. Any thread may call it."""
        self._heard.hear(event)
        if isinstance(event, (PartitionsRevoked, PartitionsAssigned)):
            for _, progress in self._crews:
                progress.forget(set(event.partitions))

    def note(self, words: str) -> None:
        """Say in the state what is unusual, until it has not been said again for a while. Any thread may call it."""
        self._noted = (words, time.monotonic())
        self._life.note(words)

    def health(self) -> Health:
        """How it is doing now."""
        with self._lock:
            now, used = time.monotonic(), set[tuple[str, str]]()
            reasons = []
            for level, code, subject, words, age in self._found(now):
                known = now - self._since.setdefault((code, subject), now)
                used.add((code, subject))
                reasons.append(Reason(level, code, words, moment(known if age is None else age)))
            self._since = {name: since for name, since in self._since.items() if name in used}
        return Health.of(reasons)

    def why(self, after: float) -> list[Stall]:
        """What stands still for so many seconds, and why; the longest first."""
        with self._lock:
            found = [stall for _, progress in self._crews for stall in progress.stalls(after)]
        return sorted(found, key=lambda stall: (-stall.age, stall.topic, stall.partition))

    @property
    def _is_paused(self) -> bool:
        return self._life.state in (State.PAUSING, State.PAUSED)

    def _found(self, now: float) -> Iterator[_Found]:
        state, detail = self._life.state, self._life.detail
        if state is State.INITIALISING and detail:
            code = "topic-missing" if detail.startswith("waiting for topic") else "brokers-unreachable"
            yield (Level.CRITICAL, code, "", detail, None)
        elif state is State.INITIALISING or state in _WORDS:
            yield (Level.OK, state.value, "", _WORDS.get(state, "it looks for brokers and topics"), None)
        trouble = None if self._check is None else self._check.trouble
        if trouble is not None:
            yield (Level.WARNING, "check", "", f"nothing is read, because {trouble}", None)
        elif self._is_paused:
            yield (Level.OK, "paused", "", f"it was paused{f': {detail}' if detail else ''}", None)
        if state in _AT_WORK:
            for crew, progress in self._crews:
                yield from self._found_at(crew, progress, now)

    def _found_at(self, crew: Crew, progress: Progress, now: float) -> Iterator[_Found]:
        where, seen = ",".join(crew.cluster.brokers), crew.monitor.view
        if seen.code:
            yield (Level.CRITICAL, seen.code, where, seen.words, now - seen.since)
        if seen.brokers is not None and seen.brokers < self.minimum_brokers:
            words = f"there are {seen.brokers} brokers at {where}, and there should be {self.minimum_brokers}"
            yield (Level.WARNING, "few-brokers", where, words, None)
        yield from _found_of_member(crew, where, now)
        for station in crew.stations:
            yield from self._found_of_handler(crew, station, now)
        yield from _found_of_commits(progress, where)
        serious = [stall for stall in progress.stalls(self.stalled_after) if stall.code != "delay"]
        for stall in serious[:_SHOWN]:
            subject = f"{stall.topic}[{stall.partition}]"
            yield (Level.WARNING, "stalled", subject, str(stall), stall.age.total_seconds())
        if len(serious) > _SHOWN:
            words = f"{len(serious) - _SHOWN} more partitions stand still"
            yield (Level.WARNING, "stalled", where, words, serious[-1].age.total_seconds())

    def _found_of_handler(self, crew: Crew, station: HandlerWorker, now: float) -> Iterator[_Found]:
        spec, outbox = station.spec, station.processor.outbox
        if station.breaker.is_open:
            yield (
                Level.WARNING, "breaker-open", spec.name, breaker_words(station, self._heard),
                now - station.breaker.opened_at,
            )  # fmt: skip
        timeout = crew.cluster.producer.timeout.total_seconds()
        troubles = self._heard.troubles(spec.name, is_pending=bool(outbox.pending), timeout=timeout)
        known = {topic for topic, _, _ in troubles}
        for late in [late for late in outbox.late if late.topic not in known]:
            told = f"{late.words(now)}; records of handler {spec.name!r} wait"
            yield (Level.WARNING, "copies-late", late.topic, told, now - late.since)
        for topic, words, since in troubles:
            told = f"{words}; records of handler {spec.name!r} wait, and it is tried again"
            yield (Level.CRITICAL, "cannot-write", topic, told, now - since)

    def _look(self) -> None:
        """What is done once a second."""
        for crew, progress in self._crews:
            progress.look()
            if crew.monitor.view.words:
                self.note(crew.monitor.view.words)
        self._forget_note()
        health, status = self.health(), self._status
        self._note_waiting(health)
        if status is not None and not self._is_over.is_set():
            status.write(self._said(health))

    def _note_waiting(self, health: Health) -> None:
        """Say in the state that the group gives no partitions, and no longer once it does."""
        since = datetime.now(UTC) - _SOON
        words = next((each.words for each in health.reasons if each.code in _IDLE and each.since < since), "")
        if words and self._life.state is State.CONSUMING:
            self._waits = words
            self.note(words)
        elif self._waits:
            self._life.note("", instead_of=self._waits)
            self._waits = ""

    def _forget_note(self) -> None:
        words, said = self._noted
        if words and time.monotonic() - said > _NOTED:
            self._noted = ("", 0.0)
            self._life.note("", instead_of=words)

    def _said(self, health: Health) -> dict[str, Any]:
        said: dict[str, Any] = {
            "state": self._life.state.value,
            "detail": self._life.detail,
            "health": health.as_dict(),
            "why": [stall.as_dict() for stall in self.why(_EVERY)[:100]],
            "brokers": [",".join(crew.cluster.brokers) for crew, _ in self._crews],
            "owned": {},
            "lag": {},
            "written": datetime.now(UTC).isoformat(),
        }
        for crew, progress in self._crews:
            for topic, partition in sorted(crew.owned):
                said["owned"].setdefault(topic, []).append(partition)
            for (topic, partition), lag in sorted(progress.lag().items()):
                said["lag"].setdefault(topic, {})[str(partition)] = lag
        return said

    def _repeat(self, is_over: threading.Event) -> None:
        while not is_over.is_set():
            try:
                self._look()
            except Exception:  # noqa: BLE001 - what watches must not end the run, nor be silent
                if not self._has_complained:
                    self._has_complained = True
                    _log.exception("the watch of the health failed; it goes on")
            is_over.wait(_EVERY)


_Found = tuple[Level, str, str, str, float | None]
"""Level, code, what it is about, words, and for how many seconds, if that is known."""


def _found_of_member(crew: Crew, where: str, now: float) -> Iterator[_Found]:
    status, limit = crew.worker_loop.status(), crew.cluster.consumer.max_poll_interval.total_seconds() / 3
    session = crew.cluster.consumer.session_timeout
    silent = now - status.polled
    if silent > limit and not crew.member.is_over:
        words = f"nothing was asked of the brokers at {where} for {lasting(silent)}; the group may give us up"
        yield (Level.CRITICAL, "not-polling", where, words, silent)
    if crew.owned:
        return
    killed = f"those of a member that was killed come after its session time-out ({in_words(session)})"
    if not status.has_joined:
        words = f"it waits for the group to give it partitions; {killed}"
        yield (Level.WARNING, "no-partitions", where, words, None)
    else:
        words = f"the group has no partitions for it now; {killed}"
        yield (Level.OK, "spare", where, words, None)


def _found_of_commits(progress: Progress, where: str) -> Iterator[_Found]:
    late = progress.uncommitted()
    if late:
        topic, partition = min(late)
        more = f" and {len(late) - 1} more" if len(late) > 1 else ""
        seconds = max(late.values())
        words = (
            f"for {lasting(seconds)} nothing was committed of {topic}[{partition}]{more}, where records are finished"
        )
        yield (Level.WARNING, "commits-late", where, words, seconds)
