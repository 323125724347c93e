"""``laneway dedup``: look at an id in a dedup store, or forget it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laneway.cli._options import ConfigOption, JsonOption, ProfileOption, TargetArgument

if TYPE_CHECKING:
    from pathlib import Path

    from laneway._declare.handler import HandlerSpec

__all__ = ["app"]

app = typer.Typer(name="dedup", help="Look at ids in a dedup store, or forget them.", no_args_is_help=True)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id, as its header or field has it.")]
HandlerOption = Annotated[
    str | None, typer.Option("--handler", help="The handler, when several of the app have a dedup store.")
]


@app.command()
def get(
    target: TargetArgument,
    id_: IdArgument,
    handler: HandlerOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    profile: ProfileOption = "default",
) -> None:
    """Show what the store knows of an id. Exit codes: 0 it is known, 1 it is not, 2 wrong usage."""
    route = _route(target, handler, config, profile)
    found = _store(route).get(id_, scope=route.scope)
    if as_json:
        state = "absent" if found is None else found.state
        value: dict[str, Any] = {"handler": route.scope, "id": id_, "state": state}
        if found is not None:
            value |= {"until": found.until.isoformat(), "token": found.token, "owner": found.owner}
        typer.echo(json.dumps(value))
    elif found is None:
        typer.echo(f"{id_}: absent; a record with this id is handled")
    elif found.state == "done":
        typer.echo(f"{id_}: done, remembered until {found.until:%Y-%m-%d %H:%M:%S %Z}")
    else:
        typer.echo(f"{id_}: claimed by {found.owner}, for no longer than {found.until:%Y-%m-%d %H:%M:%S %Z} if it died")
    sys.exit(0 if found is not None else 1)


@app.command()
def forget(
    target: TargetArgument,
    id_: IdArgument,
    handler: HandlerOption = None,
    config: ConfigOption = None,
    profile: ProfileOption = "default",
) -> None:
    """Forget an id, so that a record with it is handled again. Exit codes: 0 forgotten, 1 not known, 2 wrong usage."""
    route = _route(target, handler, config, profile)
    is_known = _store(route).delete(id_, scope=route.scope)
    typer.echo(f"{id_}: {'forgotten' if is_known else 'was not known'}")
    sys.exit(0 if is_known else 1)


def _route(target: str, handler: str | None, config: Path | None, profile: str) -> HandlerSpec:
    from laneway._runtime.configure import configured
    from laneway.cli._run import loaded
    from laneway.cli._target import TargetError, find_app

    found = configured(find_app(target), loaded(config, profile, {}))
    routes = {route.name: route for route in found.routes if route.dedup is not None and not route.dedup.in_order}
    if handler is None and len(routes) == 1:
        return next(iter(routes.values()))
    if handler in routes:
        return routes[handler]
    known = ", ".join(routes) or "none"
    raise TargetError(f"name a handler that keeps ids in a dedup store with --handler; {target} has: {known}")


def _store(route: HandlerSpec) -> Any:
    return route.dedup
