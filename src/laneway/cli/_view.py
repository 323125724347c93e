"""A live view of a run: one panel on a terminal, one line a batch elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from laneway._life import State
from laneway.instrumentation import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RunView"]

_REFRESH = 0.25


@dataclass
class RunView:
    """Shows what a run does. Engines call `batch_done` and `state_changed` from any thread.

    Args:
        title: what runs.
        lag: gives the records that wait, or None when it cannot be known now; called about once a second.
        ideal: records per second that the lanes could reach, if known.
        quiet: show nothing but problems.
    """

    title: str
    lag: Callable[[], int | None] | None = None
    ideal: float | None = None
    quiet: bool = False
    total: Tally = field(default_factory=Tally)
    _last: Tally = field(default_factory=Tally)
    _state: State = State.INITIALISING
    _detail: str = ""
    _lag: int | None = None
    _live: Any = None
    _done: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Begin to show."""
        if sys.stdout.isatty() and not self.quiet:
            from rich.live import Live

            self._live = Live(self._panel(), refresh_per_second=8, transient=True)
            self._live.start()
        self._thread = threading.Thread(target=self._follow, name="laneway-view", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop showing."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        if self._live is not None:
            self._live.stop()

    def batch_done(self, topic: str, batch: int, tally: Tally) -> None:
        """Take note of a batch."""
        with self._lock:
            self.total.add(tally)
            self._last = tally
        if self._live is None and not self.quiet and tally.read:
            lag = "" if self._lag is None else f", lag {self._lag:,}"
            print(
                f"batch {batch} of {topic}: {tally.read:,} records at {_rate(tally):,.0f}/s, "
                f"{tally.lanes_busy:.0f} lanes busy, {tally.retried:,} retried, {tally.parked:,} parked{lag}",
                flush=True,
            )
        for sample in tally.samples[:1] if self._live is None and not self.quiet else ():
            print(f"  {sample.fate} {sample.topic}[{sample.partition}]@{sample.offset}: {sample.error}", flush=True)

    def state_changed(self, state: State, detail: str) -> None:
        """Take note of a state."""
        self._state, self._detail = state, detail
        if self._live is None and (detail or not self.quiet):
            print(f"{self.title}: {state.value}{f' ({detail})' if detail else ''}", flush=True)

    def _follow(self) -> None:
        asked = 0.0
        while not self._done.wait(_REFRESH):
            if self.lag is not None and self._state is State.CONSUMING and time.monotonic() - asked >= 1:
                asked = time.monotonic()
                self._lag = self.lag()
            if self._live is not None:
                self._live.update(self._panel())

    def _panel(self) -> Any:
        from rich.panel import Panel
        from rich.table import Table

        with self._lock:
            total, last = self.total, self._last
            grid = Table.grid(padding=(0, 2))
            grid.add_column(style="dim")
            grid.add_column()
            rate = f"{_rate(last):,.0f} records/s"
            if self.ideal:
                rate += f"  ({_rate(last) / self.ideal:.0%} of the ideal {self.ideal:,.0f})"
            p50, p99 = last.percentile(50), last.percentile(99)
            grid.add_row("state", f"{self._state.value} {self._detail}")
            grid.add_row("throughput", rate)
            grid.add_row("lag", "unknown" if self._lag is None else f"{self._lag:,} records")
            grid.add_row("lanes busy", f"{last.lanes_busy:,.0f}")
            grid.add_row("latency", "-" if p50 is None else f"p50 {p50:,} ms, p99 {p99:,} ms")
            grid.add_row("handled", f"{total.handled:,}")
            grid.add_row("retried", f"{total.retried:,}")
            grid.add_row("parked", f"{total.parked:,}")
            for sample in last.samples[:3]:
                grid.add_row(sample.fate, f"{sample.topic}[{sample.partition}]@{sample.offset} {sample.error}"[:100])
        return Panel(grid, title=self.title, border_style="cyan", expand=False)


def _rate(tally: Tally) -> float:
    return tally.finished / (tally.last - tally.first) if tally.last > tally.first else 0.0
