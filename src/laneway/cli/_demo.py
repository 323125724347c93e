"""`laneway demo`: a complete run in half a minute."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from laneway.cli._progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from laneway._runtime.topics import LagReader
    from laneway.cli._view import RunView
    from laneway.devkit.demo import Figures
    from laneway.devkit.demo._calls import Calls

__all__ = ["demo"]

_INTERRUPTED = 130  # as shells report it: 128 plus the number of SIGINT


def demo(
    records: Annotated[int, typer.Option(min=1, help="How many orders to produce and handle.")] = 60_000,
    lanes: Annotated[int, typer.Option(min=1, help="Lanes per partition.")] = 25,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; progress goes to stderr.")] = False,
) -> None:
    """Start a Kafka, handle orders with a slow handler on Spark, and check every call.

    Needs only Java. The first run fetches the Kafka jars (44 MB). Leaves nothing behind. Exit codes: 0 clean, 1 a
    record was lost, repeated or out of order, 130 interrupted.
    """
    began = time.monotonic()
    try:
        from laneway.devkit.demo import Interrupted, perform

        try:
            figures = perform(records, lanes, _Show(sys.stderr if as_json else sys.stdout))
        except Interrupted:
            raise KeyboardInterrupt from None
    except KeyboardInterrupt:
        typer.echo("stopped; nothing is left running", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    wall = time.monotonic() - began
    if as_json:
        print(json.dumps({**figures.as_dict(), "wall_seconds": round(wall, 3)}))
    else:
        _print_table(figures, wall)
    if not figures.is_clean:
        for problem in figures.problems:
            typer.secho(f"NOT CLEAN: {problem}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1)


class _Show:
    """Shows the demo: bars and a live panel on a terminal, lines elsewhere."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def say(self, text: str) -> None:
        print(text, file=self._output, flush=True)

    def bar(self, text: str) -> AbstractContextManager[Callable[[str, int, int], None]]:
        return progress_bar(text, self._output)

    def watch(self, *, lag: LagReader, source: Calls, total: int, ideal: float) -> RunView:
        from laneway.cli._view import RunView

        return RunView("demo on Spark", lag=lag, ideal=ideal, source=source, goal=total, output=self._output)


def _print_table(figures: Figures, wall: float) -> None:
    rows = _rows(figures, wall)
    if not sys.stdout.isatty():
        width = max(len(name) for name, _, _ in rows)
        for name, value, note in rows:
            print(f"{name:<{width}}  {value:>9}  {note}".rstrip())
        return
    from rich.console import Console
    from rich.table import Table

    good = figures.is_clean
    style = "bold green" if good else "bold red"
    table = Table(title="clean" if good else "NOT CLEAN", title_style=style, show_header=False)
    table.add_column()
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    for name, value, note in rows:
        is_bad = name in ("inversions", "lost", "duplicates", "overlaps") and value != "0"
        table.add_row(name, value, note, style="red" if is_bad else None)
    Console().print(table)


def _rows(figures: Figures, wall: float) -> list[tuple[str, str, str]]:
    """Name, value and what it was computed from."""
    share = figures.records_per_second / figures.ideal_per_second
    return [
        ("records in", f"{figures.records:,}", f"ends of the {figures.partitions} partitions of orders"),
        ("handled", f"{figures.handled:,}", f"calls that returned; {figures.receipts:,} receipts on their topic"),
        ("parked", f"{figures.parked:,}", "copies read back from the error topic"),
        ("retries", f"{figures.retries:,}", "calls with attempt 2 or more"),
        ("inversions", f"{figures.inversions:,}", "calls of a key before an earlier record of it"),
        ("lost", f"{figures.lost:,}", "neither handled nor parked"),
        ("duplicates", f"{figures.duplicates:,}", "calls or copies too many"),
        ("overlaps", f"{figures.overlaps:,}", "calls of one key at the same time"),
        ("at once", f"{figures.most_at_once:,}", f"of {figures.partitions * figures.lanes:,} lanes"),
        ("mean call", f"{figures.call_ms:.1f} ms", "of which 20 ms are the payment service"),
        (
            "records/s",
            f"{figures.records_per_second:,.0f}",
            f"{share:.0%} of the ideal {figures.ideal_per_second:,.0f}",
        ),
        (
            "faster",
            f"{figures.times_faster:,.1f}x",
            f"than one at a time per partition, {figures.one_at_a_time_per_second:,.0f}/s with calls that long",
        ),
        ("in all", f"{wall:.1f} s", f"of which {figures.seconds:.1f} s from the first to the last call"),
    ]
