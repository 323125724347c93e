"""Turns the model's errors into problems with file, line, key and fix."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from laneway.errors import Problem
from laneway.settings._introspect import fields_at
from laneway.settings._located_values import Node, Path, dotted, find, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

__all__ = ["near", "problem_at", "report"]

_OTHER_NAMES = {
    "acknowledge": "acks",
    "batchsize": "size",
    "bootstrap_servers": "brokers",
    "certificates": "ca",
    "clientid": "client_id",
    "consumebatchlistenerlatency": "within",
    "error": "error_topic",
    "fetchmaxbytes": "fetch_max_size",
    "maxmessagebytes": "max_message_size",
    "maxprocessingtime": "timeout",
    "offsetinitial": "start",
    "rebalancetimeout": "max_poll_interval",
    "requiredacks": "acks",
    "retrycount": "attempts",
    "virtualpartitionchancount": "buffer_records",
    "virtualpartitioncount": "lanes",
}
"""Names of settings in other tools, for hints only."""


def near(name: str, known: Mapping[str, object] | list[str]) -> str:
    """The hint for an unknown name: the closest known one, or all of them."""
    names = sorted(known)
    even = name[:100].strip().lower().replace("-", "_")
    other = _OTHER_NAMES.get(even.replace("_", ""), "") or _OTHER_NAMES.get(even, "")
    found = [other] if other in names else get_close_matches(even, names, n=1, cutoff=0.6)
    if found:
        return f"did you mean '{found[0]}'?"
    return f"use one of: {', '.join(names)}" if names else "remove it"


def problem_at(root: Node, path: Path, message: str, fix: str) -> Problem:
    """A problem at the place where *path* is written, or at the nearest place above it."""
    node = find(root, path)
    return Problem(node.source, node.line, dotted(path), message, fix)


def report(error: ValidationError, root: Node) -> Iterator[tuple[Path, Problem]]:
    """Each refused value: the path to remove before the rest is checked again, and the problem."""
    for details in error.errors(include_url=False):
        path = tuple(part for part in details["loc"] if part != "[key]")
        message, fix = _words(details, path)
        is_entry = details["type"] == "missing" and path[-1] != "brokers"
        yield path[:-1] if is_entry else path, problem_at(root, path, message, fix)


def _words(details: ErrorDetails, path: Path) -> tuple[str, str]:
    kind, value = details["type"], details["input"]
    context: dict[str, Any] = details.get("ctx", {})
    name = str(path[-1]) if path else ""
    if kind == "laneway":
        return context["message"], context["fix"]
    if kind == "extra_forbidden":
        return "there is no such setting", near(name, fields_at(path[:-1]))
    if kind == "missing":
        return "the setting is missing", f"add '{name}: ...'"
    if kind == "literal_error":
        choices = [choice.strip("' ") for choice in context["expected"].replace(" or ", ", ").split(", ")]
        match = get_close_matches(str(value)[:40], choices, n=1)
        return f"{shown(value)} is not one of {', '.join(choices)}", f"write {match[0] if match else choices[0]}"
    if kind in {"model_type", "model_attributes_type", "dict_type"}:
        # The value is not shown: a password in the wrong place lands here.
        given = {str: "text", bool: "a boolean", int: "a number", float: "a number"}.get(type(value), "a list")
        return f"{given} is given, but a table of settings is expected", "write 'name: value' lines below, indented"
    return details["msg"], "see docs/configuration.md"
