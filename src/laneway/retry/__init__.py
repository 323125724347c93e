"""What happens to a record that fails: how often it is tried again, and what its copies say. Pure."""

from laneway.retry._breaker import Breaker, is_failure
from laneway.retry._due import DueEnds
from laneway.retry._envelope import (
    ERROR_HEADERS,
    Failure,
    Reduction,
    deferred_headers,
    errors_of,
    origin_of,
    parked_at,
    parked_headers,
    read_from,
    recall,
    returned_headers,
    text_of,
)
from laneway.retry._names import ERROR_PATTERN, RETRY_PATTERN, error_topic_name, topic_name
from laneway.retry._policy import Defer, Mode, Park, Retriable, Retry, TryAgain, Verdict, judge
from laneway.retry._rerun import Rerun, is_new
from laneway.retry._styles import STYLES, Style

__all__ = [
    "ERROR_HEADERS",
    "ERROR_PATTERN",
    "RETRY_PATTERN",
    "STYLES",
    "Breaker",
    "Defer",
    "DueEnds",
    "Failure",
    "Mode",
    "Park",
    "Reduction",
    "Rerun",
    "Retriable",
    "Retry",
    "Style",
    "TryAgain",
    "Verdict",
    "deferred_headers",
    "error_topic_name",
    "errors_of",
    "is_failure",
    "is_new",
    "judge",
    "origin_of",
    "parked_at",
    "parked_headers",
    "read_from",
    "recall",
    "returned_headers",
    "text_of",
    "topic_name",
]
