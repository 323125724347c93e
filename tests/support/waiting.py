"""Waiting for something to become true, instead of sleeping and hoping."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from laneway.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["eventually"]

T = TypeVar("T")


def eventually(
    condition: Callable[[], T], *, timeout: float = 60.0, every: float = 0.05, why: Callable[[], str] | str = ""
) -> T:
    """Ask *condition* again and again until it gives something true, and give that.

    Args:
        condition: what to ask; an AssertionError counts as "not yet", and so does a request that fails, as one about a
            topic that was created a moment ago may.
        timeout: seconds to go on asking.
        every: seconds between two questions.
        why: what was waited for, for the message of a failure; a function is asked at that moment.
    """
    deadline = time.monotonic() + timeout
    while True:
        failure: Exception | None = None
        try:
            answer = condition()
        except (AssertionError, AdminError) as error:
            failure = error
        else:
            if answer:
                return answer
        if time.monotonic() > deadline:
            told = why() if callable(why) else why
            raise AssertionError(f"not within {timeout:g} s: {told}") from failure
        time.sleep(every)
