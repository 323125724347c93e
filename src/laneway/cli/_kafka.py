"""``laneway kafka``: a real Kafka for development on this machine."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from laneway.cli._options import JsonOption
from laneway.cli._progress import progress_bar
from laneway.devkit import broker

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KAFKA", "app"]

KAFKA = f"Kafka {broker.KAFKA_VERSION}"

app = typer.Typer(
    name="kafka",
    help=f"Run a real {KAFKA} on this machine for development, without docker.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Option("--name", help="Name of the cluster; each keeps its own data and logs.")]

# Often enough for a reader, and cheap.
_FOLLOW_PAUSE = 0.5


@app.command()
def start(
    nodes: Annotated[int, typer.Option("--nodes", help="1, or 3 with every topic replicated to all three.")] = 1,
    port: Annotated[
        int, typer.Option("--port", help="Port of the first node; the others follow. 0 takes any free ports.")
    ] = broker.DEFAULT_PORT,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep the data in a temporary folder; `stop` removes it all.")
    ] = False,
    name: Name = "default",
) -> None:
    """Start a cluster in the background and wait until it answers.

    If the cluster runs already, only its dead nodes are started. The first start fetches the Kafka jars (44 MB).
    Without --ephemeral the next start uses the same data.
    """
    before = broker.status(name)
    began = time.monotonic()
    with progress_bar(KAFKA) as progress:
        running = broker.start(nodes=nodes, port=port or None, name=name, ephemeral=ephemeral, progress=progress)
    if before is not None and before.running:
        typer.echo(f"Cluster {name!r} is already running.")
    else:
        typer.echo(f"Cluster {name!r} is up after {time.monotonic() - began:.1f} s.")
    typer.echo(f"Bootstrap servers: {running.bootstrap}")
    option = "" if name == "default" else f" --name {name}"
    typer.echo(f"Next: laneway doctor --brokers {running.nodes[0].address}; to stop it: laneway kafka stop{option}")


@app.command()
def stop(name: Name = "default") -> None:
    """Stop a cluster; an ephemeral one is removed with its data and logs."""
    stopped = broker.stop(name)
    typer.echo(f"Cluster {name!r} is stopped." if stopped else f"Cluster {name!r} is not running.")


@app.command()
def status(
    name: Annotated[str | None, typer.Option("--name", help="Only this cluster; default: all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the clusters and whether their nodes answer."""
    found = [broker.status(each) for each in ([name] if name else broker.names())]
    clusters = [each for each in found if each is not None]
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in clusters], indent=2))
        return
    if not clusters:
        typer.echo("There is no cluster. Start one with: laneway kafka start")
    for cluster in clusters:
        kind = "ephemeral" if cluster.ephemeral else "data is kept"
        typer.echo(f"{cluster.name}: Kafka {cluster.kafka_version}, {kind}, bootstrap servers {cluster.bootstrap}")
        for node in cluster.nodes:
            process = f", process {node.pid}" if node.pid else ""
            typer.echo(f"  node {node.id} at {node.address}: {node.state}{process}, log {node.log}")
        if cluster.ephemeral and all(node.pid is None for node in cluster.nodes):
            typer.echo(f"  no node is running; to remove it: laneway kafka stop --name {cluster.name}")


@app.command()
def logs(
    name: Name = "default",
    lines: Annotated[int, typer.Option("--lines", min=0, help="Lines per node.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", help="Follow new lines until Ctrl-C.")] = False,
) -> None:
    """Show the end of the nodes' logs."""
    files = broker.log_files(name)
    positions = [file.stat().st_size if file.exists() else 0 for file in files]
    for node, tail in broker.log_tail(name, lines).items():
        for line in tail:
            typer.echo(_labelled(node, line, len(files)))
    try:
        while follow:
            time.sleep(_FOLLOW_PAUSE)
            for number, file in enumerate(files):
                positions[number], fresh = _read_on(file, positions[number])
                for line in fresh:
                    typer.echo(_labelled(number + 1, line, len(files)))
    except KeyboardInterrupt:
        return


@app.command()
def fetch(
    force: Annotated[bool, typer.Option("--force", help="Fetch again even when the jars are there.")] = False,
) -> None:
    """Fetch the Kafka jars and check them, without starting anything."""
    with progress_bar(KAFKA) as progress:
        directory = broker.fetch(force=force, progress=progress)
    typer.echo(f"Kafka {broker.KAFKA_VERSION} is in {directory}")


def _labelled(node: int, line: str, nodes: int) -> str:
    return f"node {node}: {line}" if nodes > 1 else line


def _read_on(file: Path, position: int) -> tuple[int, list[str]]:
    try:
        size = file.stat().st_size
        if size == position:
            return position, []
        with file.open("rb") as stream:
            # A file that became shorter was rolled over; read it from the start.
            stream.seek(position if size > position else 0)
            text = stream.read()
            # An incomplete line waits for its end.
            whole = text.rfind(b"\n") + 1
            return stream.tell() - len(text) + whole, text[:whole].decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return 0, []
