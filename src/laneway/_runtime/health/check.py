"""Check: a user's own function that says whether records may be handled now."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from laneway._clock import SystemClock
from laneway._declare.health import lasting
from laneway._declare.interceptors import name_of
from laneway._runtime.host import new_loop
from laneway.errors import SettingsError, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laneway._clock import Clock
    from laneway._runtime.host import LoopOwner
    from laneway.settings import Settings

__all__ = ["CheckAnswer", "HealthCheck", "check_function"]

_SYSTEM = SystemClock()
_EVERY = 1.0  # seconds between calls
_TIMEOUT = 5.0  # seconds without an answer after which it counts as no
_LONGEST = 300  # characters of an error's text


def check_function(settings: Settings) -> Callable[[], Any] | None:
    """The function named by ``health.check``; None when it is not set.

    Raises:
        SettingsError: there is no such function.
    """
    named = settings.health.check
    if named is None:
        return None
    module, _, name = named.partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # user code: any error of the module is a problem of this setting
        text = f"module {module!r} cannot be imported: {type(error).__name__}: {text_of(error)}"
        fix = "correct the name, or start laneway in the folder of the module"
        raise SettingsError([settings.problem("health.check", text, fix)]) from error
    if not callable(found):
        text = f"module {module!r} has no function {name!r}"
        raise SettingsError([settings.problem("health.check", text, "name a function of the module")])
    return found  # type: ignore[no-any-return]


class CheckAnswer:
    """The last answer of a health check. `HealthCheck` gets it on a thread, the in-memory fake in virtual time.

    Args:
        function: sync or async; an exception or a false result counts as no, None as yes.
        every: seconds between calls.
        timeout: seconds without an answer that count as no.
        clock: measures them.
    """

    def __init__(
        self,
        function: Callable[[], Any],
        *,
        every: float = _EVERY,
        timeout: float = _TIMEOUT,
        clock: Clock = _SYSTEM,
    ) -> None:
        self._function = function
        self._every, self._timeout = every, timeout
        self._clock = clock
        self._name = name_of(function)
        self._began: float | None = None
        self._answer: str | None = f"the check {self._name!r} has not answered yet"

    @property
    def trouble(self) -> str | None:
        """Why no call may be started; None when the check passes. Any thread may ask."""
        began = self._began
        waited = 0.0 if began is None else self._clock.monotonic() - began
        if waited > self._timeout:
            return f"the check {self._name!r} has not answered for {lasting(waited)}"
        return self._answer

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """A call of the check: how long it takes is measured, and an error is its answer."""
        self._began = self._clock.monotonic()
        try:
            yield
        except Exception as error:  # noqa: BLE001 - user code
            text = " ".join(f"{type(error).__name__}: {text_of(error)}".split())[:_LONGEST]
            self._answer = f"the check {self._name!r} failed: {text}"
        finally:
            self._began = None

    def _take(self, answer: Any) -> None:
        self._answer = None if answer is None or answer else f"the check {self._name!r} returned false"

    async def _in_time(self, answer: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout) as limit:
                return await answer
        except TimeoutError:
            if not limit.expired():
                raise  # the check's own
            raise TimeoutError(f"no answer within {lasting(self._timeout)}") from None


class HealthCheck(CheckAnswer):
    """Calls a health check about once a second, on its own thread, where it may hang.

    Args:
        function: as of `CheckAnswer`.
        loops: has the event loop of async handlers, for an async check; None for its own loop.
        every: as of `CheckAnswer`.
        timeout: as of `CheckAnswer`.
    """

    def __init__(
        self,
        function: Callable[[], Any],
        loops: LoopOwner | None,
        *,
        every: float = _EVERY,
        timeout: float = _TIMEOUT,
    ) -> None:
        super().__init__(function, every=every, timeout=timeout)
        self._loops = loops
        self._own: asyncio.AbstractEventLoop | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="laneway-check", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop calling it, without waiting for a call that hangs."""
        self._is_over.set()

    def _work(self) -> None:
        while not self._is_over.is_set():
            with self._asking():
                answer = self._function()
                self._take(self._awaited(answer) if inspect.isawaitable(answer) else answer)
            self._is_over.wait(self._every)
        if self._own is not None:
            self._own.close()

    def _awaited(self, answer: Any) -> Any:
        if self._loops is None:
            self._own = self._own or new_loop()
            return self._own.run_until_complete(self._in_time(answer))
        future = asyncio.run_coroutine_threadsafe(self._in_time(answer), self._loops.loop)
        while not self._is_over.is_set():
            try:
                return future.result(0.1)
            except TimeoutError:
                if future.done():
                    return future.result()
        future.cancel()
        return False
