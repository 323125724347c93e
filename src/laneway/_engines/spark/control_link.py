"""The end of the control connection in a planner's or worker's process."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

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
    prove_as_process,
    read_to_process,
)
from laneway.observe import logger

if TYPE_CHECKING:
    from laneway._core.breaker import BreakerState
    from laneway._engines.spark.control import FromProcess
    from laneway._engines.spark.task import TaskHealth
    from laneway.observe import Tally

__all__ = ["ControlLine", "ControlLink", "send_log_lines"]

_log = logger("spark")

_CONNECT = 5.0  # seconds for a connection
_SOONEST, _LATEST = 0.1, 5.0  # seconds before the next try
_EVERY = 0.5  # seconds between counts of running tasks
_LOOK = 1.0  # seconds between statuses of running tasks
_KEPT = 1_000  # queued notices and log lines
_LONGEST = 2_000  # characters of a line
_GIVE_UP = 120.0  # seconds without connection and task after which a run counts as ended
_FIRST = 2.0  # seconds that a process waits for its first orders
_PROGRESS = 2.0  # seconds that a planner waits for positions already under way

_links: dict[tuple[int, str, int, bytes], ControlLink] = {}
_linking = threading.Lock()


class ControlLink:
    """This process's connection to the driver of one run, on its own thread; it reconnects by itself.

    Any thread may use it. After each login the newest message of each kind is sent again; queued lines are sent then.
    """

    def __init__(self, address: ControlAddress) -> None:
        self._address = address
        self._orders: dict[int, Orders] = {}
        self._newest: dict[object, FromProcess] = {}
        self._changed: dict[object, FromProcess] = {}
        self._lines: deque[FromProcess] = deque(maxlen=_KEPT)
        self._tasks: dict[tuple[int, int], tuple[int, Tally]] = {}
        self._looks: dict[tuple[int, int], tuple[int, TaskHealth]] = {}
        self._breakers: dict[tuple[str, str], BreakerState] = {}
        self._reported: dict[tuple[str, str], tuple[object, ...]] = {}
        self._received: dict[tuple[str, str], tuple[float, BreakerReport]] = {}
        self._has_orders = threading.Event()
        self._progress: dict[int, Progress] = {}
        self._arrival = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._asked = asyncio.Event()
        self._spread = random.Random()  # noqa: S311 - it keeps processes from trying all at once
        self.is_connected = False
        self.is_over = False
        """No connection will be made any more: it gave up, or the run has ended."""
        threading.Thread(target=self._run, name="laneway-control", daemon=True).start()

    @classmethod
    def of(cls, address: ControlAddress) -> ControlLink:
        """The connection of this process. One that the parent process made does not survive a fork."""
        name = (os.getpid(), address.host, address.port, address.token)
        with _linking:
            link = _links.get(name)
            if link is None or link.is_over:
                for other in [key for key, known in _links.items() if known.is_over or key[0] != name[0]]:
                    del _links[other]
                link = _links[name] = cls(address)
        return link

    def orders(self, channel: int) -> Orders:
        return self._orders.get(channel, Orders(channel))

    def wait(self) -> None:
        """Wait a moment for the first orders; an unreachable driver does not block the task."""
        self._has_orders.wait(_FIRST)

    def progress(self, channel: int, batch: int) -> Progress | None:
        """The positions after the last batch; None when they do not arrive in time."""
        with self._arrival:
            self._arrival.wait_for(lambda: self._is_known(channel, batch), _PROGRESS)
            return self._progress[channel] if self._is_known(channel, batch) else None

    def _is_known(self, channel: int, batch: int) -> bool:
        return channel in self._progress and self._progress[channel].batch == batch

    def say(self, message: Answer) -> None:
        """Send a message that replaces the previous one of its kind."""
        self._newest[message.channel] = self._changed[message.channel] = message
        self._wake_up()

    def post(self, message: Notice | LogLine) -> None:
        """Send a log line or warning, now or after the next login."""
        self._lines.append(message)
        self._wake_up()

    def watch(self, channel: int, task: int, attempt: int, tally: Tally, look: TaskHealth | None = None) -> None:
        """Send the counts and warnings of a task from now on."""
        self._tasks[channel, task] = (attempt, tally)
        if look is not None:
            self._looks[channel, task] = (attempt, look)
        self._wake_up()

    def unwatch(self, channel: int, task: int) -> None:
        self._tasks.pop((channel, task), None)
        self._looks.pop((channel, task), None)

    def watch_breaker(self, app: str, handler: str, state: BreakerState) -> None:
        """Share the state of a breaker with other processes, and take over theirs. Only between tasks."""
        at, report = self._received.pop((app, handler), (0.0, None))
        if report is not None:
            state.is_open, state.failures, state.probes = report.is_open, report.failures, report.probes
            state.opened_at, state.probe_at = at - report.opened_ago, at + report.probe_in
            state.error = report.error
        self._breakers[app, handler] = state
        self._reported[app, handler] = _essence_of(state)

    def _wake_up(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: it is over
            self._loop.call_soon_threadsafe(self._wake.set)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self.is_over, self.is_connected = True, False
            self._loop.close()

    async def _serve(self) -> None:
        pause, seen = _SOONEST, time.monotonic()
        while not self.is_over:
            writer = None
            try:
                opened = asyncio.open_connection(self._address.host, self._address.port)
                reader, writer = await asyncio.wait_for(opened, _CONNECT)
                await prove_as_process(reader, writer, self._address.token)
                self._changed.update(self._newest)
                self.is_connected, pause = True, _SOONEST
                await self._exchange(reader, writer)
            except (OSError, EOFError, TimeoutError, RefusedError):
                pass  # retried below; without a connection it cannot be reported
            finally:
                if self.is_connected:
                    seen = time.monotonic()
                self.is_connected = False
                if writer is not None:
                    writer.close()
            if not self._tasks and time.monotonic() - seen > _GIVE_UP:
                return
            await asyncio.sleep(pause * self._spread.uniform(0.5, 1.5))
            pause = min(_LATEST, pause * 2)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        work = (self._receive_loop(reader), self._send_loop(writer), self._status_loop(writer))
        sides = [asyncio.ensure_future(side) for side in work]
        try:
            done, _ = await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
            for side in done:
                side.result()
        finally:
            for side in sides:
                side.cancel()
            await asyncio.gather(*sides, return_exceptions=True)

    async def _receive_loop(self, reader: asyncio.StreamReader) -> None:
        is_news = False
        while True:
            match await read_to_process(reader):
                case Orders() as orders:
                    self._orders[orders.channel] = orders
                    self._has_orders.set()
                    is_news = True
                case Progress() as progress:
                    with self._arrival:
                        self._progress[progress.channel] = progress
                        self._arrival.notify_all()
                case BreakerReport(app=app, handler=handler) as report:
                    # The driver's state may be older than what this process found while it was disconnected.
                    if is_news or (app, handler) not in self._breakers:
                        self._received[app, handler] = (time.monotonic(), report)
                case Ask():
                    self._asked.set()
                case Over():
                    self.is_over = True
                    return

    async def _send_loop(self, writer: asyncio.StreamWriter) -> None:
        due = 0.0
        while True:
            self._wake.clear()
            while self._changed:
                writer.write(frame(self._changed.popitem()[1]))
            while self._lines:
                writer.write(frame(self._lines.popleft()))
            if time.monotonic() >= due:
                due = time.monotonic() + _EVERY
                for message in (*self._figures(), *self._reports()):
                    writer.write(frame(message))
            await writer.drain()
            with suppress(TimeoutError):
                # Not wait_for: in Python 3.11 it may ignore a cancellation, and the link would never reconnect.
                async with asyncio.timeout(max(0.0, due - time.monotonic())):
                    await self._wake.wait()

    async def _status_loop(self, writer: asyncio.StreamWriter) -> None:
        """Send the status of the tasks, once a second and on request.

        The tasks are inspected on another thread, because one may not answer.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._asked.wait()
            self._asked.clear()
            for (channel, task), (attempt, look) in tuple(self._looks.items()):
                found = await asyncio.to_thread(look.look)
                if found is not None and (channel, task) in self._looks:
                    writer.write(frame(TaskStatus(channel, task, attempt, *found)))
            await writer.drain()

    def _figures(self) -> list[Figures]:
        return [
            Figures(channel, task, attempt, tally) for (channel, task), (attempt, tally) in tuple(self._tasks.items())
        ]

    def _reports(self) -> list[BreakerReport]:
        """Reports of breakers that changed since the last call."""
        now, found = time.monotonic(), []
        for (app, handler), state in tuple(self._breakers.items()):
            said = _essence_of(state)
            if said != self._reported[app, handler]:
                self._reported[app, handler] = said
                times = (now - state.opened_at, state.probe_at - now)
                found.append(
                    BreakerReport(app, handler, state.is_open, state.failures, state.probes, *times, state.error)
                )
        return found


class ControlLine:
    """One query's part of the connection; without an address it only logs."""

    def __init__(self, address: ControlAddress | None) -> None:
        self.link = None if address is None else ControlLink.of(address)
        self._channel = 0 if address is None else address.channel
        self._answer = Answer(self._channel)

    @property
    def orders(self) -> Orders:
        return Orders() if self.link is None else self.link.orders(self._channel)

    def begin(self) -> None:
        """Register this process as the planner of the query."""
        if self.link is not None:
            self.link.say(self._answer)

    def progress(self, batch: int) -> Progress | None:
        """The positions after the last batch; None when only the group has them."""
        return None if self.link is None else self.link.progress(self._channel, batch)

    def answer(self, *, is_drained: bool = False, paused: int = 0, loss: str = "") -> None:
        """Send the planner's state if it changed."""
        said = replace(
            self._answer,
            is_drained=is_drained or self._answer.is_drained,
            paused=paused or self._answer.paused,
            loss=loss or self._answer.loss,
        )
        if said != self._answer and self.link is not None:
            self._answer = said
            self.link.say(said)

    def note(self, text: str) -> None:
        """Send a warning; without a connection it is logged here."""
        text = " ".join(text.split())[:_LONGEST]
        if self.link is None or not self.link.is_connected:
            _log.warning(text)
        else:
            self.link.post(Notice(self._channel, text))

    def watch(self, task: int, attempt: int, tally: Tally, look: TaskHealth | None = None) -> None:
        if self.link is not None:
            self.link.watch(self._channel, task, attempt, tally, look)

    def unwatch(self, task: int) -> None:
        if self.link is not None:
            self.link.unwatch(self._channel, task)


class LineHandler(logging.Handler):
    """Sends log records of this process to the driver, which logs them."""

    def __init__(self, link: ControlLink) -> None:
        super().__init__()
        self.link = link

    def emit(self, record: logging.LogRecord) -> None:
        if self.link.is_connected:
            self.link.post(LogLine(record.name, record.levelno, self.format(record)[:_LONGEST]))
        else:
            sys.stderr.write(f"{record.levelname} {record.name}: {self.format(record)}\n")


def send_log_lines(link: ControlLink) -> None:
    """Forward this process's log records to the driver, unless the user configured logging here."""
    root, ours = logging.getLogger(), logging.getLogger("laneway")
    for place in (root, ours):
        for handler in [handler for handler in place.handlers if isinstance(handler, LineHandler)]:
            place.removeHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = not root.handlers
    (root if ours.propagate else ours).addHandler(LineHandler(link))


def _essence_of(state: BreakerState) -> tuple[object, ...]:
    return (state.is_open, state.failures if state.is_open else 0, state.probe_at)
