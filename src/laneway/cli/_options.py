"""Options that several commands share, declared once."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BrokersOption", "ClusterOption", "ConfigOption", "JsonOption", "ProfileOption", "TargetArgument", "grouped"]

TargetArgument = Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app, for example billing:app.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="LANEWAY_CONFIG", help="Configuration file. [default: laneway.yaml, if it exists]"),
]
ProfileOption = Annotated[
    str, typer.Option("--profile", envvar="LANEWAY_PROFILE", help="Profile of the configuration.")
]
BrokersOption = Annotated[
    str | None, typer.Option("--brokers", help="Kafka bootstrap servers; overrides the configuration.")
]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", help="A cluster of the configuration. [default: the default cluster]")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Expand each parameter that is a dataclass of options into these options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    options: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            group = groups[parameter.name]
            options += inspect.signature(group).parameters.values()
            hints |= get_type_hints(group, include_extras=True)
        else:
            options.append(parameter)

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **given)

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [option.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[option.name]) for option in options]
    )
    run.__annotations__ = {option.name: hints[option.name] for option in options}
    return run
