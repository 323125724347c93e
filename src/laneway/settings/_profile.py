"""Picks the profile out of the file and lays it over the profile ``default``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway.errors import Problem
from laneway.settings._introspect import fields
from laneway.settings._located_values import Node, dotted, merge, shown
from laneway.settings._model import Settings
from laneway.settings._yaml import read

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["choose"]


def choose(path: Path | None, profile: str) -> tuple[Node, list[Problem]]:
    """The settings of *profile*, and everything that is wrong with the file itself."""
    if path is None:
        missing = [] if profile == "default" else [_unknown("settings", profile, [])]
        return Node({}, "settings"), missing
    source = str(path)
    node, problems = read(path)
    empty = Node({}, source, 1)
    if node is None:
        return empty, problems
    if not node.is_mapping:
        what = "the file is empty" if node.value is None else "the file is not a table of profiles"
        fix = "begin with 'default:' and indent the settings below it"
        return empty, [*problems, Problem(source, node.line, "", what, fix)]
    profiles: dict[str, Node] = node.value
    misplaced = [key for key in profiles if key in fields(Settings)]
    for key in misplaced:
        message = "this is a setting, but profiles are expected here"
        problems.append(Problem(source, profiles[key].line, key, message, "put it below 'default:', indented"))
    values = [name for name, part in profiles.items() if not part.is_mapping and part.value is not None]
    strays = [name for name in values if name not in misplaced]
    problems += [_no_table(source, name, profiles[name]) for name in strays]
    if profile not in profiles and not misplaced and not strays:
        problems.append(_unknown(source, profile, list(profiles)))
    chosen = empty
    for name in dict.fromkeys(("default", profile)):
        part = profiles.get(name, empty)
        if part.is_mapping:
            chosen = merge(chosen, part)
    return chosen, problems


def _no_table(source: str, name: str, part: Node) -> Problem:
    message = f"{shown(part.value)} is given, but a profile is a table of settings"
    fix = "indent the settings below it; if it is a setting itself, put it below 'default:'"
    return Problem(source, part.line, dotted((name,)), message, fix)


def _unknown(source: str, profile: str, known: list[str]) -> Problem:
    names = ", ".join(dotted((name,)) for name in known) or "none"
    message = f"there is no profile {shown(profile)}; the profiles are: {names}"
    return Problem(source, None, "", message, "use one of them, or add it to the file")
