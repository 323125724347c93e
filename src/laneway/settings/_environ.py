"""Settings from environment variables: ``LANEWAY_DRAIN`` or ``LANEWAY__CLUSTERS__MAIN__BROKERS``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway.errors import Problem
from laneway.settings._introspect import fields, is_table
from laneway.settings._located_values import MAX_DEPTH, Node
from laneway.settings._model import Settings, SparkSettings
from laneway.settings._report import near

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["from_environment", "short_names"]

Layer = tuple[tuple[str, ...], Node]

_NOT_SETTINGS = {"LANEWAY_HOME", "LANEWAY_CONFIG", "LANEWAY_PROFILE", "LANEWAY_PRELOAD", "LANEWAY_DEBUG"}


def short_names() -> dict[str, tuple[str, ...]]:
    """The variables with one underscore and the settings they stand for."""
    names: dict[str, tuple[str, ...]] = {"LANEWAY_BROKERS": ("brokers",)}
    names |= {f"LANEWAY_{name.upper()}": (name,) for name, info in fields(Settings).items() if not is_table(info)}
    names |= {
        f"LANEWAY_SPARK_{name.upper()}": ("spark", name)
        for name, info in fields(SparkSettings).items()
        if not is_table(info)
    }
    return names


def from_environment(environ: Mapping[str, str]) -> tuple[list[Layer], list[Problem]]:
    """The settings in *environ*, the general form after the short one; the values are never in a problem."""
    short = short_names()
    layers: list[Layer] = []
    problems: list[Problem] = []
    for name in sorted(environ, key=lambda name: (name.startswith("LANEWAY__"), name)):
        if not name.startswith("LANEWAY_") or name in _NOT_SETTINGS:
            continue
        path = short.get(name)
        if path is None and name.startswith("LANEWAY__"):
            path = tuple(part.lower() for part in name.removeprefix("LANEWAY__").split("__"))
        if path is None or not all(path) or len(path) > MAX_DEPTH:
            fix = _hint(name, short)
            problems.append(Problem(name, None, "", "this variable is not a setting", fix))
            continue
        layers.append((path, Node(environ[name], name)))
    return layers, problems


def _hint(name: str, short: Mapping[str, object]) -> str:
    known = {key.removeprefix("LANEWAY_").lower(): key for key in (*short, *_NOT_SETTINGS)}
    hint = near(name.removeprefix("LANEWAY_"), known)
    if not hint.startswith("did you mean"):
        return "unset it, or write LANEWAY__ and the path of the setting with '__' for each dot"
    return f"did you mean {known[hint.split(chr(39))[1]]}?"
