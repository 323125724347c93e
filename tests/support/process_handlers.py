"""Handlers that run in child processes: each does what its record says, and notes it in a file that outlives it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from laneway import Message, Reject, RetryAfter, Skip, Topic
from laneway.codecs import Json

OUT = Topic("out", value=Json())
LOG = "PROCESS_LOG"
"""The variable that names the file."""


def note(what: str, **more: object) -> None:
    """Write a line at once: a process that is killed has no time for buffers."""
    line = json.dumps({"what": what, "pid": os.getpid(), "at": time.monotonic(), **more})
    file = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)


def notes(what: str | None = None) -> list[dict]:
    """What was noted so far."""
    path = Path(os.environ[LOG])
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if what in (None, line["what"])]


class BrokenPickleError(Exception):
    """Can be pickled, but not be made again of its pickle."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"{why} ({code})")


class NoSuchError(Exception):
    """Can be made again of its pickle, but says something else then."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no such {name}")
        self.status = 404


def is_busy(error: Exception) -> bool:
    """Whether an error is worth a retry, by what it holds."""
    return error.status == 503


class BadOrder(Reject):
    """A signal of the user's own that cannot be pickled."""

    def __init__(self, lock: object) -> None:
        super().__init__("bad order")
        self.lock = lock


class Later(RetryAfter):
    """Asks for a delay, in a way that its pickle does not tell."""

    def __init__(self) -> None:
        super().__init__("1ms", "later")


def does_nothing(_record) -> None:
    """The fastest handler there is."""


def obey(record):
    """Do what the record says, and note when it began and ended."""
    word, _, rest = (record.raw or b"").decode().partition(" ")
    place = {"offset": record.offset, "key": (record.key or b"").decode(), "attempt": record.attempt}
    note("begin", **place)
    answer = globals()[f"do_{word or 'nothing'}"](record, rest)
    note("end", **place)
    return answer


def obey_quickly(record):
    """As `obey`, but records that say nothing leave no note, and are fast."""
    return obey(record) if record.raw else None


def obey_all(batch):
    """A batch handler: note who came together, then do what each says."""
    note("batch", offsets=[record.offset for record in batch])
    answers = [obey(record) for record in batch]
    for record in batch:
        if record.raw == b"mark":
            batch.reject(record, "marked")
    return [answer for answer in answers if answer is not None]


def do_nothing(_record, _rest):
    return None


do_mark = do_nothing


def do_work(_record, rest):
    time.sleep(float(rest))


def do_hang(_record, _rest):
    time.sleep(3600)


def do_burden(_record, _rest):
    """Hang with so much memory that it takes a while to die."""
    burden = b"x" * (300 << 20)
    time.sleep(3600)
    note("never", size=len(burden))


def do_spin(_record, _rest):
    while True:
        pass


def do_segfault(_record, _rest):
    ctypes.string_at(0)


def do_exit(_record, rest):
    os._exit(int(rest))


def do_kill(_record, _rest):
    os.kill(os.getpid(), signal.SIGKILL)


def do_leave(_record, rest):
    sys.exit(int(rest))


def do_fail(record, rest):
    if not rest or record.attempt <= int(rest):
        raise ValueError("planted")


def do_outage(_record, rest):
    """Fail for as long as fewer calls than that have begun."""
    if len(notes("begin")) < int(rest):
        raise ConnectionError("down")


def do_reject(_record, _rest):
    raise BadOrder(threading.Lock())


def do_later(record, _rest):
    if record.attempt == 1:
        raise Later


def do_missing(_record, _rest):
    raise NoSuchError("order")


def do_break(_record, _rest):
    raise BrokenPickleError(7, "broken")


def do_skip(_record, rest):
    raise Skip(rest)


def do_send(record, rest):
    return OUT.message({"offset": record.offset, "rest": rest}, key=record.key)


def do_blob(record, rest):
    size = int(rest.split()[0])
    note("blob", size=len(record.raw))
    return Message(Topic("out"), b"x" * size, record.key)


def do_refuse(_record, _rest):
    return Message(Topic("out"), b"value", b"k", headers=[("odd", object())])


def do_look(_record, _rest):
    """Note which of the processes that ran calls are still there, as a running one or as a zombie."""
    others = {line["pid"] for line in notes("begin")} - {os.getpid()}
    note("look", left=[pid for pid in others if Path(f"/proc/{pid}").exists()])


def do_signals(_record, _rest):
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)


def do_family(_record, _rest):
    """Start a program that would go on alone, and hang."""
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    note("family", program=program.pid)
    time.sleep(3600)


def do_orphan(_record, _rest):
    """Die and leave a copy that holds every file of this process open."""
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    os._exit(4)


def upper(record):
    """A consume interceptor."""
    return None if record.raw == b"drop" else record


def stamped(message):
    """A produce interceptor."""
    return message.replaced(headers=[("made-by", str(os.getpid()).encode())])


def open_pool() -> None:
    """A setup."""
    note("setup")


async def open_async() -> None:
    """A setup that is awaited."""
    note("setup-async")


def close_pool() -> None:
    """A cleanup."""
    note("cleanup")


def cleanup_fails() -> None:
    """A cleanup."""
    raise OSError("cannot close")


def setup_fails() -> None:
    """A setup."""
    raise ConnectionError("no database")


def setup_dies() -> None:
    """A setup."""
    note("dies")
    os._exit(9)


class Sealed:
    """A codec whose values stay where they are made: they cannot be pickled."""

    def encode(self, value):
        return value.encode()

    def decode(self, data):
        if data == b"unreadable":
            raise UnicodeError("planted")
        if data == b"deadly":
            note("deadly")
            os._exit(5)
        return Secret(data.decode())


class Secret:
    """What `Sealed` gives."""

    def __init__(self, text):
        self.text = text
        self.lock = threading.Lock()


def read_secret(record) -> None:
    note("read", text=record.value.text, offset=record.offset)
    if record.value.text == "fail":
        raise ValueError("planted")


class InTwos:
    """A kind: two records a call."""

    def split(self, records):
        return [records[at : at + 2] for at in range(0, len(records), 2)]
