"""`laneway setup`: fetch and build once what later starts need."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import Any

import typer

__all__ = ["setup"]


def setup() -> None:
    """Fetch the development broker's jars and build the archive that halves Spark's start.

    Everything goes to LANEWAY_HOME (a folder in your cache directory by default); what is there is kept.
    """
    from laneway.broker import fetch, find_java
    from laneway.cli._kafka import fetch_progress
    from laneway.engines.spark import archive_path, build_archive

    java = find_java()
    typer.echo(f"Java {java.major}: {java.executable}")
    with fetch_progress() as progress:
        typer.echo(f"Kafka jars: {fetch(progress=progress)}")
    if archive_path().exists():
        typer.echo(f"Spark class archive: {archive_path()}")
        return
    began = time.monotonic()
    with _spinner("building Spark's class archive (about 30 s, once)"):
        path = build_archive()
    typer.echo(f"Spark class archive: {path} (built in {time.monotonic() - began:.0f} s)")


def _spinner(text: str) -> Any:
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        return console.status(text)
    print(text, file=sys.stderr, flush=True)
    return nullcontext()
