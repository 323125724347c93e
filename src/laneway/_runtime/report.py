"""RunReport: what a run did."""

from __future__ import annotations

from dataclasses import dataclass, field

from laneway._declare.error_consumer import ErrorRuns
from laneway.observe import Tally

__all__ = ["RunReport"]


@dataclass(slots=True)
class RunReport:
    """What a run did."""

    app: str
    tally: Tally = field(default_factory=Tally)
    batches: int = 0
    was_forced: bool = False
    """Stopped before the running batch was over, by a second signal or because `drain` ran out."""
    errors: ErrorRuns = field(default_factory=ErrorRuns)
    """What the runs over the error topics did that began meanwhile, on their schedule."""
