"""HealthMonitor: looks once a second at what could block an app, and says how it is doing."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from laneway._clock import SystemClock
from laneway._declare.health import Health, Level, Reason, Stall, moment
from laneway._declare.state import State
from laneway._runtime.health.findings import findings_of
from laneway._runtime.health.progress import Progress
from laneway._runtime.health.snapshot import Finding
from laneway.observe import logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laneway._clock import Clock
    from laneway._runtime.health.check import CheckAnswer
    from laneway._runtime.health.snapshot import HealthSource
    from laneway._runtime.lifecycle import Lifecycle
    from laneway._runtime.status_file import StatusFile

__all__ = ["HealthMonitor"]

_log = logger("runtime")

_SYSTEM = SystemClock()
_EVERY = 1.0  # seconds
_NOTED = 12.0  # seconds that a warning stays in the state; a lasting one is repeated every ten
_SOON = timedelta(seconds=2)  # a stable group assigns partitions sooner
_IDLE = ("no-partitions", "spare")
_MOST = 100  # stalls in a status
_AT_WORK = (State.CONSUMING, State.PAUSING, State.PAUSED, State.STOPPING)
_WORDS = {
    State.STARTING: "starting",
    State.STOPPING: "stopping: records in flight are being finished",
    State.STOPPED: "not running",
    State.CLOSING: "closing",
    State.CLOSED: "closed",
}


class HealthMonitor:
    """Judges the health of an engine once a second, on its own thread. Any thread may ask.

    It does not slow down processing, and reports only partitions that are read here now.
    """

    def __init__(self, life: Lifecycle, clock: Clock = _SYSTEM) -> None:
        self._life = life
        self._clock = clock
        self._stalled_after = 30.0
        self._minimum_brokers = 1
        self._warning = ("", 0.0)
        self._waits = ""
        """The message about partitions that are not assigned."""
        self._watched: Sequence[Progress] = ()
        self._check: CheckAnswer | None = None
        self._status: StatusFile | None = None
        self._since: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_logged = False

    def begin(
        self, status: StatusFile | None, *, stalled_after: timedelta = timedelta(seconds=30), minimum_brokers: int = 1
    ) -> None:
        """Start the monitor."""
        self._stalled_after, self._minimum_brokers = stalled_after.total_seconds(), minimum_brokers
        self._is_over, self._status = threading.Event(), status
        self._warning, self._since = ("", 0.0), {}  # of this run only
        self._thread = threading.Thread(target=self._repeat, args=(self._is_over,), name="laneway-health", daemon=True)
        self._thread.start()

    def watch(self, watched: Sequence[HealthSource], check: CheckAnswer | None) -> None:
        """Set the health sources and the health check."""
        with self._lock:
            self._check = check
            self._watched = [Progress(each, self._clock) for each in watched]
        if self._minimum_brokers > 1:
            for each in watched:
                each.count_brokers()

    def end(self) -> None:
        self._is_over.set()
        with self._lock:
            self._watched, self._check = (), None
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1)
        if self._status is not None:
            self._status.remove()

    def note(self, text: str) -> None:
        """Show a warning in the state until it is 12 s old. Any thread may call it."""
        self._warning = (text, self._clock.monotonic())
        self._life.note(text)

    def health(self) -> Health:
        with self._lock:
            now, used = self._clock.monotonic(), set[tuple[str, str]]()
            reasons = []
            for level, code, subject, text, age in self._found():
                known = now - self._since.setdefault((code, subject), now)
                used.add((code, subject))
                since = moment(known if age is None else age, self._now())
                reasons.append(Reason(level, code, text, since))
            self._since = {name: since for name, since in self._since.items() if name in used}
        return Health.of(reasons)

    def see(self) -> None:
        """Remember where the partitions stand now; a loop on virtual time calls it when that has changed."""
        with self._lock:
            for progress in self._watched:
                progress.look(is_paused=self._is_paused)

    def why(self, after: float) -> list[Stall]:
        """The partitions without progress for this many seconds, and the cause; the longest first."""
        for progress in self._watched:
            progress.watched.refresh()
        return self._stalls(after)

    def _stalls(self, after: float) -> list[Stall]:
        found = []
        with self._lock:
            for progress in self._watched:
                found += progress.stalls(progress.look(is_paused=self._is_paused), after)
        return sorted(found, key=lambda stall: (-stall.age, stall.topic, stall.partition))

    @property
    def _is_paused(self) -> bool:
        return self._life.state in (State.PAUSING, State.PAUSED)

    def _found(self) -> Iterator[Finding]:
        state, detail = self._life.state, self._life.detail
        if state is State.INITIALISING and detail:
            code = "topic-missing" if detail.startswith("waiting for topic") else "brokers-unreachable"
            yield Finding(Level.CRITICAL, code, "", detail)
        elif state is State.INITIALISING or state in _WORDS:
            yield Finding(Level.OK, state.value, "", _WORDS.get(state, "looking for brokers and topics"))
        trouble = None if self._check is None else self._check.trouble
        if trouble is not None:
            yield Finding(Level.WARNING, "check", "", f"nothing is read, because {trouble}")
        elif self._is_paused:
            yield Finding(Level.OK, "paused", "", f"paused by request{f': {detail}' if detail else ''}")
        if state in _AT_WORK:
            for progress in self._watched:
                seen = progress.look(is_paused=self._is_paused)
                yield from findings_of(
                    progress,
                    seen,
                    self._clock.monotonic(),
                    stalled_after=self._stalled_after,
                    minimum_brokers=self._minimum_brokers,
                )

    def look(self) -> None:
        """Update the state and the status file."""
        for progress in self._watched:
            if text := progress.look(is_paused=self._is_paused).brokers.text:
                self.note(text)
        self._forget_warning()
        health, status = self.health(), self._status
        self._warn_of_missing_partitions(health)
        if status is not None and not self._is_over.is_set():
            status.write(self._content(health))

    def _warn_of_missing_partitions(self, health: Health) -> None:
        """Show in the state that no partitions are assigned, as long as that lasts."""
        since = self._now() - _SOON
        text = next((each.text for each in health.reasons if each.code in _IDLE and each.since < since), "")
        if text and self._life.state is State.CONSUMING:
            self._waits = text
            self.note(text)
        elif self._waits:
            self._life.note("", instead_of=self._waits)
            self._waits = ""

    def _forget_warning(self) -> None:
        text, since = self._warning
        if text and self._clock.monotonic() - since > _NOTED:
            self._warning = ("", 0.0)
            self._life.note("", instead_of=text)

    def _content(self, health: Health) -> dict[str, Any]:
        content: dict[str, Any] = {
            "state": self._life.state.value,
            "detail": self._life.detail,
            "health": health.as_dict(),
            "why": [stall.as_dict() for stall in self._stalls(_EVERY)[:_MOST]],
            "brokers": [],
            "owned": {},
            "lag": {},
            "written": self._now().isoformat(),
        }
        for progress in self._watched:
            seen = progress.watched.look()
            content["brokers"].append(seen.where)
            for topic, partition in sorted(seen.owned):
                content["owned"].setdefault(topic, []).append(partition)
            for (topic, partition), lag in sorted(seen.lag.items()):
                content["lag"].setdefault(topic, {})[str(partition)] = lag
        return content

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall(), UTC)

    def _repeat(self, is_over: threading.Event) -> None:
        while not is_over.is_set():
            try:
                self.look()
            except Exception:  # noqa: BLE001 - what watches must not end the run, nor be silent
                if not self._has_logged:
                    self._has_logged = True
                    _log.exception("the health monitor failed; it continues")
            is_over.wait(_EVERY)
