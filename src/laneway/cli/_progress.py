"""Progress of long steps: a bar on a terminal, some lines elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["progress_bar"]

_LINES = 5  # per stage, where there is no terminal


@contextmanager
def progress_bar(text: str, output: TextIO | None = None) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show how far the work on *text* is; the function takes stage, done and total, if it is known."""
    output = output or sys.stdout
    if not output.isatty():

        def line(stage: str, done: int, total: int | None) -> None:
            if total is not None and (done in (1, total) or done % max(1, total // _LINES) == 0):
                typer.echo(f"{stage} {text}: {done:,} of {total:,}", file=output)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(file=output), transient=True) as bars:
        task = bars.add_task(f"starting {text}", total=None)

        def show(stage: str, done: int, total: int | None) -> None:
            bars.update(task, description=f"{stage} {text}", completed=done, total=total)

        yield show
