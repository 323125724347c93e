"""``laneway config``: show the effective settings, or what is wrong with them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laneway.cli._options import ConfigOption, ProfileOption

if TYPE_CHECKING:
    from laneway.settings import Settings

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Show or check the configuration.")

_DEFAULT_FILE = Path("laneway.yaml")


@app.command()
def show(
    config: ConfigOption = None,
    profile: ProfileOption = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of YAML.")] = False,
) -> None:
    """Print the effective settings, secrets masked, and where values that are not defaults come from."""
    settings = _loaded(config, profile)
    if as_json:
        report = {
            "settings": settings.dump(),
            "origins": dict(settings.origins),
            "warnings": [str(warning) for warning in settings.warnings],
        }
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    import yaml

    # The origins are comments, so that the output is itself a configuration file.
    typer.echo(yaml.safe_dump({"default": settings.dump()}, sort_keys=False, allow_unicode=True), nl=False)
    for key, origin in settings.origins.items():
        typer.echo(f"# {key}: {origin}")
    _warn(settings)


@app.command()
def check(config: ConfigOption = None, profile: ProfileOption = "default") -> None:
    """Print 'ok', or every problem with file, line, key and fix. Connects to nothing."""
    _warn(_loaded(config, profile))
    typer.echo("ok")


def _loaded(config: Path | None, profile: str) -> Settings:
    from laneway.settings import load

    if config is None and _DEFAULT_FILE.is_file():
        config = _DEFAULT_FILE
    return load(config, profile=profile, environ=os.environ)


def _warn(settings: Settings) -> None:
    for warning in settings.warnings:
        typer.echo(f"warning: {warning}", err=True)
