"""The driver's end of the control connection."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from laneway._core.locate import BreakerStatus
from laneway._engines.spark.control import (
    Answer,
    Ask,
    BreakerReport,
    ControlAddress,
    Figures,
    LogLine,
    Notice,
    Orders,
    Over,
    Progress,
    RefusedError,
    TaskStatus,
    frame,
    prove_as_driver,
    read_from_process,
)
from laneway.observe import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laneway._engines.spark.control import FromProcess

__all__ = ["Channel", "ControlServer"]

_log = logger("spark")

_UNSENT = 1024 * 1024  # bytes queued for a process that does not read; then it is disconnected
_KEPT = 1_000  # notices kept until the driver takes them
_CLOSING = 2.0  # seconds to send the last messages


class Channel:
    """The driver's side of one query's connections. Any thread may use it."""

    def __init__(self, server: ControlServer, number: int) -> None:
        self._server = server
        self._lock = threading.Condition()
        self._notices: deque[str] = deque(maxlen=_KEPT)
        self._tasks: dict[int, Figures] = {}
        self._statuses: dict[int, tuple[float, TaskStatus]] = {}
        self._ended = -1
        self.orders = Orders(number)
        self.answer = Answer(number)
        self.progress: Progress | None = None
        """The last positions sent to the planner."""

    @property
    def address(self) -> ControlAddress:
        """The address for its processes; valid once the server listens."""
        return self._server.address(self.orders.channel)

    def order(self, **changes: Any) -> None:
        """Change the orders; processes that connect later get them, too."""
        with self._lock:
            self.orders = replace(self.orders, **changes)
        self._server.send(self.orders)

    def advance(self, progress: Progress) -> None:
        """Send the positions after a batch to the planner."""
        self.progress = progress
        self._server.advance(progress)

    def notices(self) -> list[str]:
        """The warnings since the last call."""
        return [self._notices.popleft() for _ in range(len(self._notices))]

    def running(self) -> list[Figures]:
        """The newest counts of each running task."""
        with self._lock:
            return list(self._tasks.values())

    def statuses(self) -> list[tuple[float, TaskStatus]]:
        """The newest status of each running task, and the seconds since its process sent anything."""
        with self._lock:
            now = time.monotonic()
            return [(now - at, status) for at, status in self._statuses.values()]

    def ask(self, patience: float) -> None:
        """Request the status of the running tasks, and wait a moment for the answers."""
        asked = time.monotonic()
        self._server.send(Ask())
        with self._lock:
            self._lock.wait_for(lambda: all(at >= asked for at, _ in self._statuses.values()), patience)

    def batch_over(self, attempts: list[int]) -> None:
        """A batch with these task numbers has ended: ignore what still arrives from them."""
        with self._lock:
            self._ended = max([self._ended, *attempts])
            self._tasks.clear()
            self._statuses.clear()

    def received(self, message: Answer | Figures | TaskStatus | Notice) -> None:
        """Process a message."""
        match message:
            case Answer():
                self.answer = message
            case Notice(text=text):
                self._notices.append(text)
                _log.warning("%s", text)
            case Figures(task=task, attempt=attempt):
                with self._lock:
                    known = self._tasks.get(task)
                    if attempt > self._ended and (known is None or attempt >= known.attempt):
                        self._tasks[task] = message
            case TaskStatus(task=task, attempt=attempt):
                with self._lock:
                    found = self._statuses.get(task)
                    if attempt > self._ended and (found is None or attempt >= found[1].attempt):
                        self._statuses[task] = (time.monotonic(), message)
                        self._lock.notify_all()


class ControlServer:
    """Listens for the processes of one run, and keeps the newest orders and breakers for those that connect later."""

    def __init__(self) -> None:
        self._token = secrets.token_bytes(32)
        self._place: tuple[str, int] | None = None
        self._channels: dict[int, Channel] = {}
        self._breakers: dict[tuple[str, str], tuple[float, BreakerReport]] = {}
        self._connected: set[asyncio.StreamWriter] = set()
        self._planners: dict[int, asyncio.StreamWriter] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None

    def channel(self) -> Channel:
        number = len(self._channels) + 1
        self._channels[number] = Channel(self, number)
        return self._channels[number]

    def listen(self, host: str, bind: str = "") -> None:
        """Start to listen.

        Args:
            host: the address that processes connect to.
            bind: the address to listen on, if it is another one.
        """
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, args=(self._loop,), name="laneway-control", daemon=True).start()
        opening = asyncio.start_server(self._serve, bind or host, 0)
        self._server = asyncio.run_coroutine_threadsafe(opening, self._loop).result()
        self._place = (host, self._server.sockets[0].getsockname()[1])

    def address(self, channel: int) -> ControlAddress:
        if self._place is None:
            raise RuntimeError("the control server does not listen yet")
        return ControlAddress(*self._place, self._token, channel)

    @property
    def connections(self) -> int:
        return len(self._connected)

    def breakers(self, app: str) -> dict[str, BreakerStatus]:
        """The open breakers of an app's handlers, as its processes last reported them."""
        now, found = time.monotonic(), {}
        for (name, handler), (at, said) in tuple(self._breakers.items()):
            if name == app and said.is_open:
                passed = now - at
                found[handler] = BreakerStatus(
                    said.opened_ago + passed, said.failures, said.error, said.probe_in - passed
                )
        return found

    def cut(self) -> None:
        """Close every connection; the processes reconnect."""
        self._call(self._cut)

    def send(self, message: Orders | Ask) -> None:
        self._call(self._broadcast, frame(message))

    def advance(self, progress: Progress) -> None:
        self._call(self._advance, progress)

    def _advance(self, progress: Progress) -> None:
        writer = self._planners.get(progress.channel)
        if writer is not None and not writer.is_closing():
            writer.write(frame(progress))

    def close(self) -> None:
        """Announce the end of the run and close all connections."""
        self._call(self._end)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(function, *arguments)

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            for task in (tasks := asyncio.all_tasks(loop)):
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks))
        finally:
            loop.close()

    def _end(self) -> None:
        assert self._server is not None and self._loop is not None  # noqa: S101, PT018 - for the type checker
        self._server.close()
        self._broadcast(frame(Over()))
        for writer in tuple(self._connected):
            writer.close()
        self._loop.call_later(_CLOSING, self._loop.stop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = (writer.get_extra_info("peername") or ("?",))[0]
        try:
            await prove_as_driver(reader, writer, self._token)
            for message in self._newest():
                writer.write(frame(message))
            self._connected.add(writer)
            while True:
                self._receive(await read_from_process(reader), writer)
        except RefusedError as error:
            _log.warning("control connection from %s closed: %s", peer, error)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # the process ended or will reconnect, or the run is over
        finally:
            self._connected.discard(writer)
            writer.close()

    def _newest(self) -> Iterator[Orders | BreakerReport]:
        # Breakers before orders: a reconnected process takes what follows its first orders as new.
        for at, report in self._breakers.values():
            passed = time.monotonic() - at
            yield replace(report, opened_ago=report.opened_ago + passed, probe_in=report.probe_in - passed)
        for channel in tuple(self._channels.values()):
            yield channel.orders

    def _receive(self, message: FromProcess, writer: asyncio.StreamWriter) -> None:
        match message:
            case LogLine(logger=name, level=level, text=text):
                logging.getLogger(name).log(level, "%s", text)
            case BreakerReport(app=app, handler=handler):
                self._breakers[app, handler] = (time.monotonic(), message)
                self._broadcast(frame(message), but=writer)
            case _:
                if (channel := self._channels.get(message.channel)) is not None:
                    channel.received(message)
                    if isinstance(message, Answer) and self._planners.get(message.channel) is not writer:
                        # Each connection of a planner begins with its answer.
                        self._planners[message.channel] = writer
                        if channel.progress is not None:
                            self._advance(channel.progress)

    def _broadcast(self, data: bytes, but: asyncio.StreamWriter | None = None) -> None:
        for writer in tuple(self._connected):
            if writer is but or writer.is_closing():
                continue
            if writer.transport.get_write_buffer_size() > _UNSENT:
                writer.transport.abort()
            else:
                writer.write(data)

    def _cut(self) -> None:
        for writer in tuple(self._connected):
            writer.transport.abort()
