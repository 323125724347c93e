"""``laneway doctor``: check this machine, and say how to fix what is missing."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from laneway.cli._options import JsonOption
from laneway.devkit.doctor import checks

__all__ = ["doctor"]

_STYLE = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def doctor(
    brokers: Annotated[
        str | None, typer.Option("--brokers", help="Also check these brokers (host:port, comma separated).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check Python, Java, Kafka, disk, memory and the Spark workers; exit code 1 when something failed."""
    results = checks(brokers)
    if as_json:
        typer.echo(json.dumps([asdict(result) for result in results], indent=2))
    else:
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        table.add_column("check", no_wrap=True)
        table.add_column("status", no_wrap=True)
        # Folded, not cut: a path without its end is useless.
        table.add_column("finding and fix", overflow="fold")
        for result in results:
            status = f"[{_STYLE[result.status]}]{result.status}[/]"
            found = f"{result.detail}\nFix: {result.fix}" if result.fix else result.detail
            table.add_row(escape(result.name), status, escape(found))
        Console().print(table)
    if any(result.status == "failed" for result in results):
        raise typer.Exit(1)
