"""What happens to a record that fails: how often it is tried again, and what its copies say. Pure."""

from laneway.retry._breaker import Breaker, is_failure
from laneway.retry._due import DueEnds
from laneway.retry._envelope import (
    ERROR_HEADERS,
    OVERSIZE,
    Failure,
    Oversize,
    Reduction,
    deferred_headers,
    errors_of,
    origin_of,
    own_size,
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
from laneway.retry._trace import as_lines, one_line

__all__ = [
    "ERROR_HEADERS",
    "ERROR_PATTERN",
    "OVERSIZE",
    "RETRY_PATTERN",
    "STYLES",
    "Breaker",
    "Defer",
    "DueEnds",
    "Failure",
    "Mode",
    "Oversize",
    "Park",
    "Reduction",
    "Rerun",
    "Retriable",
    "Retry",
    "Style",
    "TryAgain",
    "Verdict",
    "as_lines",
    "deferred_headers",
    "error_topic_name",
    "errors_of",
    "is_failure",
    "is_new",
    "judge",
    "one_line",
    "origin_of",
    "own_size",
    "parked_at",
    "parked_headers",
    "read_from",
    "recall",
    "returned_headers",
    "text_of",
    "topic_name",
]
