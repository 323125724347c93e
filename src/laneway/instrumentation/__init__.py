"""What happened, as numbers and samples: events out, nobody in."""

from laneway.instrumentation._histogram import Histogram
from laneway.instrumentation._tally import ErrorSample, Tally

__all__ = ["ErrorSample", "Histogram", "Tally"]
