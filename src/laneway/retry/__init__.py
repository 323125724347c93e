"""What happens to a record that fails: how often it is tried again, and what its parked copy says. Pure."""

from laneway.retry._envelope import ERROR_HEADERS, Failure, Reduction, parked_headers, text_of
from laneway.retry._names import error_topic_name
from laneway.retry._policy import Park, Retry, TryAgain, Verdict, judge

__all__ = [
    "ERROR_HEADERS",
    "Failure",
    "Park",
    "Reduction",
    "Retry",
    "TryAgain",
    "Verdict",
    "error_topic_name",
    "judge",
    "parked_headers",
    "text_of",
]
