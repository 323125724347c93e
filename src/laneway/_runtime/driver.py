"""Driver: what an engine has to write for one round of a run; `run` does the rest for all engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._declare.app import App
    from laneway._runtime.health.snapshot import HealthSource
    from laneway._runtime.report import Reporter, RunReport
    from laneway.observe import Listener
    from laneway.settings import Settings

__all__ = ["Driver", "Run", "StopRequests"]


@dataclass(frozen=True, slots=True)
class Run:
    """The parts of a run, before anything is read."""

    app: App
    settings: Settings
    report: RunReport
    reporter: Reporter
    """Counts the work on the app's own topics."""
    listener: Listener
    """Receives events and warnings, from any thread."""
    is_once: bool = False
    """Whether the run ends when the records present at its start are handled."""


class StopRequests(Protocol):
    """The stop requests of a run. Asked often, from any thread."""

    @property
    def is_interrupted(self) -> bool:
        """Whether to start nothing more."""

    @property
    def is_forced(self) -> bool:
        """Whether to stop without waiting."""


class Driver(Protocol):
    """Reads and handles records. The engine's thread calls it; any thread may call `pause`."""

    def prepare(self) -> bool:
        """Ask the brokers for what `start` needs; True when it is known.

        Raises:
            BrokerUnavailableError: no broker answers; call it again.
        """

    def start(self) -> None:
        """Start to read."""

    def watched(self) -> Sequence[HealthSource]:
        """The health sources, one for each cluster."""

    def look(self) -> None:
        """Report the work since the last call; raise the error that ended a part of it."""

    def pause(self, *, on: bool) -> None:
        """Start no call for now, or continue. May be called before `start`."""

    @property
    def is_quiet(self) -> bool:
        """Whether a requested pause is in effect and nothing runs."""

    @property
    def is_over(self) -> bool:
        """Whether everything to be read is finished; always False for an endless run."""

    def stop(self) -> None:
        """Start nothing more, and finish what is in flight."""

    @property
    def is_finished(self) -> bool:
        """Whether everything in flight at `stop` is finished."""

    @property
    def is_committed(self) -> bool:
        """Whether everything finished is committed."""

    def end(self, until: StopRequests) -> bool:
        """Commit, report and leave, even if calls still run; False when not everything was committed."""
