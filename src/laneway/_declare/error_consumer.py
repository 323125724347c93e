"""ErrorConsumer: when parked records are taken up again, and what is done with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from laneway._declare.cron import Cron
from laneway._declare.units import Duration, as_duration
from laneway.errors import DeclarationError
from laneway.observe import Tally

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["ErrorConsumer", "ErrorRuns"]


@dataclass(frozen=True, slots=True)
class ErrorConsumer:
    """Takes up the parked records of an app again, on a schedule or by hand (``laneway errors run``).

    A run begins where the last one ended and goes as far as the error topics reached when it began, so a record that is
    parked again waits for the next run. Runs of one process never overlap: one that falls due meanwhile is left out.

    Args:
        cron: when runs begin, such as ``*/15 * * * *``, in local time; None for only by hand.
        max_errors: a record that has been parked so often is skipped: it is not run again and stays on the error topic.
            None for no limit, which lets a record that can never succeed be parked anew in each run.
        stop_when_idle: how long an engine that waits for records waits before it ends a run. A run on Spark ends as
            soon as there is nothing left.
        stop_when_new: a run ends, in each partition, before the first record that was parked so shortly before the run;
            what just failed is likely to fail again. ``0s`` takes up everything.
        action: ``handle`` calls the handler that parked the record, or what `App.error_handler` put in its place.
            ``replay`` copies the record back to its topic.
        enabled: False for no runs on a schedule.

    Example:
        >>> from laneway import App
        >>> app = App("billing", errors=ErrorConsumer(cron="*/15 * * * *", max_errors=3))
    """

    cron: str | None = None
    max_errors: int | None = 5
    stop_when_idle: Duration = "5m"
    stop_when_new: Duration = "5m"
    action: Literal["handle", "replay"] = "handle"
    enabled: bool = True
    schedule: Cron | None = field(init=False, repr=False, compare=False)
    idle: timedelta = field(init=False, repr=False, compare=False)
    new: timedelta = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check and keep what was parsed."""
        limit: object = self.max_errors
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise DeclarationError(
                f"ErrorConsumer(max_errors={limit!r}): a record on an error topic has been parked at least "
                "once, so it is 1 or more, or None for no limit"
            )
        if self.action not in ("handle", "replay"):
            raise DeclarationError(f"ErrorConsumer(action={self.action!r}): use 'handle' or 'replay'")
        try:
            object.__setattr__(self, "schedule", None if self.cron is None else Cron.parse(self.cron))
            object.__setattr__(self, "idle", as_duration(self.stop_when_idle))
            object.__setattr__(self, "new", as_duration(self.stop_when_new))
        except ValueError as error:
            raise DeclarationError(f"ErrorConsumer: {error}") from error

    @property
    def due(self) -> Cron | None:
        """The schedule, when there is one and it is not switched off."""
        return self.schedule if self.enabled else None


@dataclass(slots=True)
class ErrorRuns:
    """What the runs over an app's error topics did."""

    runs: int = 0
    """Runs that ended well."""
    failed: int = 0
    """Runs that did not; the next one begins where they stopped."""
    left_out: int = 0
    """Runs that fell due while another one was under way."""
    tally: Tally = field(default_factory=Tally)
