"""Driver: what an engine has to write for one round of a run; `run` does the rest for all engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from laneway._declare.app import App
    from laneway._runtime.error_runs import ErrorPlan
    from laneway._runtime.health.snapshot import Watched
    from laneway._runtime.report import Reporter, RunReport
    from laneway.observe import Listener
    from laneway.settings import Settings

__all__ = ["Driver", "ErrorDrivers", "Run", "Until"]


@dataclass(frozen=True, slots=True)
class Run:
    """What is known of a run before anything is read."""

    app: App
    """With its settings applied."""
    settings: Settings
    report: RunReport
    reporter: Reporter
    """Counts what is done of the app's own topics."""
    listener: Listener
    """Hears of events and of what is waited for; any thread may call it."""
    is_once: bool = False
    """Whether it ends when what there is at its start is handled."""


class Until(Protocol):
    """How long something may go on. Asked often, by any thread."""

    @property
    def is_interrupted(self) -> bool:
        """Whether nothing more is to be begun."""

    @property
    def is_forced(self) -> bool:
        """Whether nothing is waited for any more."""


class Driver(Protocol):
    """Reads and handles records from `start` on. One thread calls it, but for `pause`, which any thread may call."""

    def prepare(self) -> bool:
        """Ask the brokers what must be known before `start`; True when it is known.

        Raises:
            BrokerUnavailableError: no broker answers; it is asked again.
        """

    def start(self) -> None:
        """Begin to read."""

    def watched(self) -> Sequence[Watched]:
        """What health is judged by."""

    def look(self) -> None:
        """Report what was done, and raise what has ended something that should run."""

    def pause(self, *, on: bool) -> None:
        """Begin nothing for now, or go on. It may come before `start`."""

    @property
    def is_quiet(self) -> bool:
        """Whether a pause was asked for and nothing runs any more."""

    @property
    def is_over(self) -> bool:
        """Whether everything that was to be read is finished; never so when it goes on without end."""

    def stop(self) -> None:
        """Begin nothing more, and finish what was begun."""

    @property
    def is_finished(self) -> bool:
        """Whether everything that was begun before `stop` is finished."""

    @property
    def is_committed(self) -> bool:
        """Whether the brokers know of everything that is finished."""

    def end(self, until: Until) -> bool:
        """Commit what is finished, report it and leave, whatever still runs; False when not all was committed."""


class ErrorDrivers(Protocol):
    """Makes what runs over error topics."""

    def drivers(self, plans: Sequence[ErrorPlan], reporter: Reporter) -> Iterable[Driver]:
        """Drivers for these plans, one to be run after the other; each ends at the ends of its plans."""
