"""`laneway setup`: fetch and build what later starts need, once."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["setup"]


def setup() -> None:
    """Fetch the development broker's jars and build the archives that halve the starts of Kafka and Spark.

    Everything goes to LANEWAY_HOME (by default a folder in your cache directory); existing files are kept.
    """
    from laneway._engines.spark import archive_path, build_archive
    from laneway.cli._kafka import KAFKA
    from laneway.cli._progress import progress_bar
    from laneway.devkit import broker

    java = broker.find_java()
    typer.echo(f"Java {java.major}: {java.executable}")
    with progress_bar(KAFKA) as progress:
        typer.echo(f"Kafka jars: {broker.fetch(progress=progress)}")
    _archive("Kafka", broker.find_archive(), broker.build_archive, "10 s")
    _archive("Spark", archive_path() if archive_path().exists() else None, build_archive, "30 s")


def _archive(name: str, found: Path | None, build: Callable[[], Path], takes: str) -> None:
    if found is not None:
        typer.echo(f"{name} class archive: {found}")
        return
    began = time.monotonic()
    with _spinner(f"building {name}'s class archive (about {takes}, once)"):
        path = build()
    typer.echo(f"{name} class archive: {path} (built in {time.monotonic() - began:.0f} s)")


def _spinner(text: str) -> Any:
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        return console.status(text)
    print(text, file=sys.stderr, flush=True)
    return nullcontext()
