"""A live view of a run: one panel on a terminal, one line a batch elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

from laneway._runtime.lifecycle import State
from laneway.cli._errors_view import safe
from laneway.events import BatchHandled, RecordHandled, RecordSkipped, StateChanged
from laneway.observe import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._runtime.topics import LagReader
    from laneway.events import Event

__all__ = ["RunView"]

_REFRESH = 0.25
_ASK = 1.0  # seconds between requests for the lag
_SAID = 30.0  # seconds before a wait that alternates with others is printed again
_WINDOW = 4  # refreshes over which throughput is averaged: one second, neither jumpy nor late
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 40
_LINE = 1_000  # characters of an event


class CountSource(Protocol):
    """Has the counts of a run, including its running batch."""

    def counts(self) -> Tally: ...


@dataclass
class RunView:
    """Shows the progress of a run. An engine calls it from any thread, as its listener.

    Args:
        title: what runs.
        lag: reads the lag about once a second.
        ideal: records per second that the lanes could reach, if known.
        quiet: show nothing but problems.
        source: has the counts within a batch, if they are known.
        goal: records to handle in all, if known.
        shows_waits: whether to print the detail of a running app; Spark's tasks log it themselves.
        output: stdout by default.
    """

    title: str
    lag: LagReader | None = None
    ideal: float | None = None
    quiet: bool = False
    source: CountSource | None = None
    goal: int | None = None
    shows_waits: bool = False
    output: TextIO = field(default_factory=lambda: sys.stdout)
    total: Tally = field(default_factory=Tally)
    _last: Tally = field(default_factory=Tally)
    _state: State = State.INITIALISING
    _detail: str = ""
    _lag: int | None = None
    _paces: deque[float] = field(default_factory=lambda: deque(maxlen=_WIDTH))
    _counts: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_WINDOW + 1))
    _live: Any = None
    _newest: str = ""
    _said: dict[str, float] = field(default_factory=dict)
    _done: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Start the view."""
        if self.output.isatty() and not self.quiet:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                self._panel(),
                console=Console(file=self.output),
                refresh_per_second=8,
                transient=True,
                redirect_stderr=sys.stderr.isatty(),  # log lines appear above the panel, unless stderr is a file
            )
            self._live.start()
            self._begin(self._refresh)
        if self.lag is not None and not self.quiet:
            # On its own thread: brokers that do not answer must not freeze the view.
            self._begin(self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the view."""
        self._done.set()
        for thread in self._threads:
            thread.join(timeout=1)
        if self._live is not None:
            self._live.stop()

    def event(self, event: Event) -> None:
        """Show what an engine reports."""
        match event:
            case BatchHandled(topic=topic, batch=batch, tally=tally):
                self.batch_done(topic, batch, tally)
            case StateChanged(state=state, detail=detail):
                self.state_changed(State(state), detail)

    def note(self, words: str) -> None: ...

    def batch_done(self, topic: str, batch: int, tally: Tally) -> None:
        """Show a batch."""
        with self._lock:
            self.total.add(tally)
            self._last = tally
            if self.source is None:
                self._paces.append(_rate(tally))
        if self._live is not None or self.quiet:
            return
        if tally.read:
            lag = "" if self._lag is None else f", lag {self._lag:,}"
            self._print(
                f"batch {batch} of {topic}: {tally.read:,} records at {self._pace_text(_rate(tally))}, "
                f"{tally.lanes_busy:.0f} lanes busy, {tally.retried:,} retried, {tally.parked:,} parked{lag}"
            )
        for event in _troubles(tally)[:1]:
            self._print(f"  {safe(str(event), _LINE)}")

    def state_changed(self, state: State, detail: str) -> None:
        """Show a state. Any thread may call it."""
        with self._lock:
            self._show_state(state, detail)

    def _show_state(self, state: State, detail: str) -> None:
        is_same, self._state, self._detail = state is self._state, state, detail
        if is_same and state is State.CONSUMING and not self.shows_waits:
            return
        if self._live is None and (detail or not self.quiet):
            line = f"{self.title}: {state.value}{f' ({detail})' if detail else ''}"
            if not is_same or not self._is_said(line, is_wait=bool(detail)):
                self._newest, self._said[line] = line, time.monotonic()
                self._print(line)

    def _is_said(self, line: str, *, is_wait: bool) -> bool:
        """Whether a line was the last one, or one of several waits that alternate. Their end is printed."""
        self._said = {known: at for known, at in self._said.items() if time.monotonic() - at < _SAID}
        return line == self._newest or (is_wait and line in self._said)

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="laneway-view", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _refresh(self) -> None:
        while not self._done.wait(_REFRESH):
            self._measure()
            self._live.update(self._panel())

    def _ask(self) -> None:
        while not self._done.wait(_ASK):
            if self.lag is not None and self._state is State.CONSUMING:
                self._lag = self.lag.read()

    def _measure(self) -> None:
        """Measure the throughput of the last second, if it is known within a batch."""
        if self.source is None or self._state is not State.CONSUMING:
            return
        with self._lock:
            self._counts.append((time.monotonic(), self.source.counts().handled))
            (before, old), (now, new) = self._counts[0], self._counts[-1]
            if new > old or self._paces:
                self._paces.append((new - old) / (now - before) if now > before else 0.0)

    def _panel(self) -> Any:
        from rich.panel import Panel
        from rich.table import Table

        with self._lock:
            grid = Table.grid(padding=(0, 2))
            grid.add_column(style="dim")
            grid.add_column(min_width=_WIDTH, overflow="fold")
            total, last = self.total, self._last
            handled = max(total.handled, self._counts[-1][1] if self._counts else 0)
            pace = self._paces[-1] if self._paces else 0.0
            p50, p99 = last.percentile(50), last.percentile(99)
            grid.add_row("state", f"{self._state.value} {self._detail}")
            grid.add_row("throughput", f"[bold]{self._pace_text(pace)}[/bold]")
            grid.add_row("", f"[green]{_spark_line(list(self._paces), self.ideal)}[/green]")
            grid.add_row("lag", "unknown" if self._lag is None else f"{self._lag:,} records")
            grid.add_row("lanes busy", f"{last.lanes_busy:,.0f}")
            grid.add_row("latency", "-" if p50 is None else f"p50 {p50:,} ms, p99 {p99:,} ms")
            grid.add_row("handled", f"{handled:,}" + (f" of {self.goal:,}" if self.goal else ""))
            grid.add_row("retried", f"{total.retried:,}")
            grid.add_row("parked", f"{total.parked:,}")
            for name, count in (("deferred", total.deferred), ("dropped", total.dropped)):
                if count:
                    grid.add_row(name, f"{count:,}")
            for event in _troubles(last)[:3]:
                word, _, rest = str(event).partition(" ")
                grid.add_row(word, _plain(safe(rest, 100)))
        return Panel(grid, title=self.title, border_style="cyan", expand=False)

    def _pace_text(self, pace: float) -> str:
        ideal = f" ({pace / self.ideal:.0%} of the ideal {self.ideal:,.0f})" if self.ideal else ""
        return f"{pace:,.0f}/s{ideal}"

    def _print(self, line: str) -> None:
        print(line, file=self.output, flush=True)


def _troubles(tally: Tally) -> list[Event]:
    """The events that a user may want to look into."""
    return [event for event in tally.events if not isinstance(event, (RecordHandled, RecordSkipped))]


def _plain(text: str) -> Any:
    """Text of a record, which must not be read as markup."""
    from rich.text import Text

    return Text(text)


def _spark_line(paces: list[float], ideal: float | None) -> str:
    """Throughput over time; full height is the ideal, or else the best so far."""
    most = max([*paces, ideal or 0.0], default=0.0)
    steps = len(_BARS) - 1
    return "".join(_BARS[min(steps, round(pace / most * steps))] for pace in paces) if most else ""


def _rate(tally: Tally) -> float:
    return tally.finished / (tally.last - tally.first) if tally.last > tally.first else 0.0
