"""ChildProcess: a process that runs a handler, as its parent sees it."""

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
from typing import TYPE_CHECKING, Any

from laneway._runtime.runners.child import DUMP, Start
from laneway._runtime.runners.process_frames import Progress, decode_answer, frame_of, take_frame

if TYPE_CHECKING:
    from laneway._runtime.runners.process_frames import Answer, Request

__all__ = ["ChildProcess"]

_BOOT = (
    "import pickle, socket, sys; line = socket.socket(fileno={}); reader = line.makefile('rb'); "
    "sys.path[:] = pickle.load(reader); from laneway._runtime.runners.child import main; main(line, reader)"
)
_LOOK = 1.0  # seconds at most between looks at a silent child: a process it forked may keep the line open for it
_GAP = 0.0002  # seconds between reads during a turn: to wake up for each call would cost more than a fast call
_LEAVE = 30.0  # seconds that cleanups may take
_DUMP_TIME = 0.1  # seconds that a child gets to write where it hangs
_LONGEST = 4_000  # bytes of what the interpreter says of a crash; no more fits into a parked copy


class ChildProcess:
    """Starts a process, asks it to call a handler, receives the outcome, kills it.

    What the child has sent stays readable when it is killed. The thread that makes it uses it, and must outlive it: the
    kernel ends the process with that thread. Any thread may `kill` it.
    """

    def __init__(self, handler: str, main: dict[str, Any], load: bytes) -> None:
        self.at = -1
        """Place of the record of the call under way; -1 when there is none."""
        self.late_at: int | None = None
        """Place of the call for which it was killed at its time limit."""
        self._began = 0.0
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair()
        self._crash, crash = os.pipe()
        os.set_blocking(self._crash, False)
        self._received = bytearray()
        self._poller = select.poll()
        self._poller.register(self._line, select.POLLIN)
        with theirs:
            self._process = subprocess.Popen(
                # -P: not what happens to lie in the current folder, before the child knows where to look.
                [sys.executable, "-P", "-c", _BOOT.format(theirs.fileno()), f"handler={handler}"],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), crash),
                # A group of its own: what the handler starts is killed with it, and Ctrl-C is for the parent.
                process_group=0,
            )
        start = Start(os.getpid(), crash, main, load)
        self._send(pickle.dumps([path or str(Path.cwd()) for path in sys.path], 5) + pickle.dumps(start, 5))
        os.close(crash)

    def ask(self, request: Request) -> None:
        """Send a request; `receive` gives the answers."""
        self._send(frame_of(request))

    def receive(self, limit: float | None = None) -> Answer | None:
        """The next answer; None when there is none any more: it died, or was killed as a call took longer than that."""
        while (frame := take_frame(self._received)) is None:
            if not self._read(limit):
                return None
        answer: Answer = decode_answer(frame)
        if isinstance(answer, Progress):
            self.at, self._began = answer.begins, time.monotonic()
        return answer

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

    @property
    def last_words(self) -> str:
        """What the interpreter said when it crashed or was to be killed. It can be read once."""
        with suppress(BlockingIOError):
            return os.read(self._crash, _LONGEST).decode("utf-8", "replace").strip()
        return ""

    def close(self) -> None:
        """Close the line."""
        self._line.close()
        os.close(self._crash)

    def _send(self, data: bytes) -> None:
        with suppress(OSError):  # it is gone, which shows when its answer is waited for
            self._line.sendall(data)

    def _read(self, limit: float | None) -> bool:
        """Wait for more; False when nothing more can come."""
        if self.at >= 0:
            time.sleep(_GAP)
        while not self._poller.poll(self._pause(limit) * 1000):
            is_late = limit is not None and self.at >= 0 and time.monotonic() - self._began >= limit
            if is_late and self.late_at is None:
                self.late_at = self.at
                self._note_where()
                self.kill()
            elif self._has_ended() and not self._poller.poll(0):
                return False
        try:
            data = self._line.recv(1 << 20)
        except OSError:
            return False
        self._received += data
        return bool(data)

    def _pause(self, limit: float | None) -> float:
        if limit is None or self.at < 0:
            return _LOOK
        if self.late_at is not None:
            return 0.01  # it is about to end
        return min(_LOOK, max(0.001, self._began + limit - time.monotonic()))

    def _note_where(self) -> None:
        """Let the interpreter write where it is."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, DUMP)
        select.select([self._crash], [], [], _DUMP_TIME)
        time.sleep(0.005)  # for the rest of it

    def _has_ended(self) -> bool:
        # Looks without collecting it: as long as it is not collected, no other process or group can have its number.
        if hasattr(os, "waitid"):
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return self._process.poll() is not None

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
