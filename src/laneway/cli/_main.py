"""The `laneway` command: one module per subcommand, errors without tracebacks."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from laneway.cli import (
    _bench,
    _config,
    _consume,
    _dedup,
    _demo,
    _doctor,
    _errors,
    _kafka,
    _produce,
    _run,
    _setup,
    _topics,
    _why,
)
from laneway.cli._logging import log_lines
from laneway.cli._target import TargetError
from laneway.errors import DeclarationError, LanewayError, SettingsError

app = typer.Typer(
    name="laneway",
    help="Process Kafka topics with more parallelism than they have partitions, in key order, losing nothing.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(_kafka.app, name="kafka")
app.add_typer(_config.app, name="config")
app.add_typer(_errors.app, name="errors")
app.add_typer(_dedup.app, name="dedup")
app.command(name="run")(_run.run)
app.add_typer(_topics.app, name="topics")
app.command(name="produce")(_produce.produce)
app.command(name="consume")(_consume.consume)
app.command(name="why")(_why.why)
app.command(name="demo")(_demo.demo)
app.command(name="bench")(_bench.bench)
app.command(name="setup")(_setup.setup)
app.command(name="doctor")(_doctor.doctor)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"laneway {version('laneway')} (Python {sys.version.split()[0]})")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command and exit: 0 done, 1 failed, 2 wrong usage or configuration, 3 stopped by force."""
    try:
        with log_lines():
            app()
    except (SettingsError, TargetError, DeclarationError) as error:
        sys.exit(_say(error, 2))
    except LanewayError as error:
        sys.exit(_say(error, 1))
    sys.exit(0)


def _say(error: LanewayError, code: int) -> int:
    if os.environ.get("LANEWAY_DEBUG"):
        raise error
    typer.secho(f"laneway: {error}", fg=typer.colors.RED, err=True)
    return code
