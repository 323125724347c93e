"""ErrorConsumer: handles parked records again, on a schedule."""

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
    """Handles the parked records of an app again, on a schedule or manually (``laneway errors run``).

    A run starts where the last one ended, and ends where the error topics ended when it started, so a record that is
    parked again waits for the next run. Runs of one process never overlap: a run that is due during another is skipped.

    Args:
        cron: when runs start, such as ``*/15 * * * *``, in local time; None for manual runs only.
        max_errors: a record that was parked this often is skipped: it is not handled and stays on the error topic. None
            for no limit; then a record that can never succeed is parked again in each run.
        stop_when_idle: how long an engine that waits for records waits before it ends a run. A run on Spark ends at the
            last record.
        stop_when_new: in each partition a run ends before the first record parked within this time before the run,
            because it is likely to fail again. ``0s`` means no limit.
        action: ``handle`` calls the handler that parked the record, or its `App.error_handler`.
            ``replay`` copies the record back to its topic.
        enabled: False disables scheduled runs.

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
        """Validate, and keep the parsed values."""
        limit: object = self.max_errors
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise DeclarationError(
                f"ErrorConsumer(max_errors={limit!r}): a record on an error topic was parked at least "
                "once, so use 1 or more, or None for no limit"
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
        """The schedule, if there is one and it is enabled."""
        return self.schedule if self.enabled else None


@dataclass(slots=True)
class ErrorRuns:
    """Results of the runs over an app's error topics."""

    runs: int = 0
    failed: int = 0
    """Runs that failed; the next one starts where they stopped."""
    left_out: int = 0
    """Runs that were due during another run and were skipped."""
    tally: Tally = field(default_factory=Tally)
