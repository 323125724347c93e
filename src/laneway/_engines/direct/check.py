"""Check: a user's own function that says whether records may be handled now."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from typing import TYPE_CHECKING, Any

from laneway._declare.health import lasting
from laneway._declare.interceptors import name_of
from laneway.errors import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HealthCheck"]

_EVERY = 1.0  # seconds between calls
_TIMEOUT = 5.0  # seconds without an answer after which it counts as no
_LONGEST = 300  # characters of an error's text


class HealthCheck:
    """Calls the function about once a second, on a thread of its own, where it may hang as long as it likes.

    Args:
        function: gives whether all is well; sync or async. What it raises counts as no, and None as yes.
        loop: gives the loop that async handlers run on, for a function that is async.
        every: seconds between calls.
        timeout: seconds without an answer after which it counts as no.
    """

    def __init__(
        self,
        function: Callable[[], Any],
        loop: Callable[[], asyncio.AbstractEventLoop],
        *,
        every: float = _EVERY,
        timeout: float = _TIMEOUT,
    ) -> None:
        self._function = function
        self._loop = loop
        self._every, self._timeout = every, timeout
        self._name = name_of(function)
        self._began: float | None = None
        self._answer: str | None = f"the check {self._name!r} has not answered yet"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="laneway-check", daemon=True)

    @property
    def trouble(self) -> str | None:
        """Why nothing is to be handled, in words; None when all is well. Any thread may ask."""
        began = self._began
        waited = 0.0 if began is None else time.monotonic() - began
        if waited > self._timeout:
            return f"the check {self._name!r} has not answered for {lasting(waited)}"
        return self._answer

    def start(self) -> None:
        """Begin to call it."""
        self._thread.start()

    def end(self) -> None:
        """Call it no more. One that hangs is left to itself."""
        self._is_over.set()

    def _work(self) -> None:
        while not self._is_over.is_set():
            self._began = time.monotonic()
            self._answer = self._ask()
            self._began = None
            self._is_over.wait(self._every)

    def _ask(self) -> str | None:
        try:
            answer = self._function()
            if inspect.isawaitable(answer):
                answer = self._awaited(answer)
            return None if answer is None or answer else f"the check {self._name!r} says no"  # noqa: TRY300 - may raise too
        except Exception as error:  # noqa: BLE001 - user code
            words = " ".join(f"{type(error).__name__}: {text_of(error)}".split())[:_LONGEST]
            return f"the check {self._name!r} failed: {words}"

    def _awaited(self, answer: Any) -> Any:
        async def waiting() -> Any:
            async with asyncio.timeout(self._timeout):
                return await answer

        future = asyncio.run_coroutine_threadsafe(waiting(), self._loop())
        while not self._is_over.is_set():
            try:
                return future.result(0.1)
            except TimeoutError:
                if future.done():
                    raise TimeoutError(f"no answer within {lasting(self._timeout)}") from None
        future.cancel()
        return False
