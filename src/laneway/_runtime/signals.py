"""Signals that ask an engine to stop."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["listen", "stop_signals"]

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Stop on SIGINT and SIGTERM in this block, if this is the main thread; restore the handlers afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    listen(stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def listen(stop: Callable[[], None]) -> None:
    """Install our signal handlers, or restore them if other code replaced them."""
    if threading.current_thread() is threading.main_thread():
        for number in _STOP_SIGNALS:
            signal.signal(number, lambda *_: stop())
