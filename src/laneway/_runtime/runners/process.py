"""A child process as its parent sees it: start it, give it turns, hear its word, kill it."""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from laneway._runtime.runners.child import DUMP, Start
from laneway._runtime.runners.process_journal import Journal

__all__ = ["Child"]

_BOOT = (
    "import pickle, socket, sys; line = socket.socket(fileno={}); reader = line.makefile('rb'); "
    "sys.path[:] = pickle.load(reader); from laneway._runtime.runners.child import main; main(line, reader)"
)
_LOOK = 1.0  # seconds at most between looks at a silent child: a process it forked may keep the line open for it
_LEAVE = 30.0  # seconds that cleanups may take
_DUMP_TIME = 0.1  # seconds that a child gets to note where it hangs


class Child:
    """A process that runs a handler, the line to it and its journal.

    The thread that makes it uses it, and must outlive it: the kernel ends the process with that thread. Any thread may
    `kill` it.
    """

    def __init__(self, handler: str, main: dict[str, Any], load: bytes) -> None:
        self.journal = Journal.new()
        self.was_late = 0.0
        """When it was killed at its time limit."""
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair()
        self._poller = select.poll()
        self._poller.register(self._line, select.POLLIN)
        with theirs:
            self._process = subprocess.Popen(
                # -P: not what happens to lie in the current folder, before the child knows where to look.
                [sys.executable, "-P", "-c", _BOOT.format(theirs.fileno()), f"handler={handler}"],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *self.journal.files),
                # A group of its own: what the handler starts is killed with it, and Ctrl-C is for the parent.
                process_group=0,
            )
        start = Start(os.getpid(), self.journal.files, main, load)
        self._send(pickle.dumps([path or str(Path.cwd()) for path in sys.path], 5) + pickle.dumps(start, 5))

    def ask(self, turn: bytes, limit: float | None) -> bytes:
        """Give it a turn and wait for its word."""
        self.journal.clear()
        self._send(turn)
        return self.word(limit)

    def word(self, limit: float | None = None) -> bytes:
        """What it says next; nothing when it is gone, or when a call took longer than *limit* and it was killed."""
        while not self._poller.poll(self._pause(limit) * 1000):
            if limit is not None and self._is_late(limit):
                self._note_where()
                self.was_late = time.monotonic()
                self.kill()
                return b""
            if self._has_ended():
                return b""
        try:
            return self._line.recv(1)
        except OSError:
            return b""

    def kill(self) -> None:
        """End it and what it started, if it still runs."""
        with self._lock:
            if self._process.returncode is None:
                self._kill_group()

    def leave(self) -> None:
        """Let it clean up and end."""
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)
        end, pause = time.monotonic() + _LEAVE, 0.001
        while not self._has_ended() and time.monotonic() < end:
            time.sleep(pause)
            pause = min(0.05, pause * 2)

    def reap(self) -> int:
        """Make sure that it is gone; its exit code, negative when it died of a signal."""
        with self._lock:
            self._kill_group()
            return self._process.wait()

    def close(self) -> None:
        """Close line and journal."""
        self._line.close()
        self.journal.close()

    def _send(self, data: bytes) -> None:
        with suppress(OSError):  # it is gone, which shows when its word is waited for
            self._line.sendall(data)

    def _pause(self, limit: float | None) -> float:
        if limit is None:
            return _LOOK
        left = self.journal.began + limit - time.monotonic() if self.journal.is_in_call else limit
        return min(_LOOK, max(0.001, left))

    def _is_late(self, limit: float) -> bool:
        began = self.journal.began
        return self.journal.is_in_call and time.monotonic() - began >= limit

    def _note_where(self) -> None:
        os.kill(self._process.pid, DUMP)
        end = time.monotonic() + _DUMP_TIME
        while not self.journal.last_words and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(0.005)  # for the rest of it

    def _has_ended(self) -> bool:
        # Looks without collecting it: as long as it is not collected, no other process or group can have its number.
        if hasattr(os, "waitid"):
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return self._process.poll() is not None

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
