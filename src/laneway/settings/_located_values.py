"""Settings before validation: values with their file and line."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["MAX_DEPTH", "Node", "Path", "dotted", "find", "flatten", "merge", "plain", "plant", "prune", "shown"]

MAX_DEPTH = 20
"""Deeper than any real configuration; keeps recursion bounded for hostile ones."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One value with its file and line: mappings hold nodes by key, sequences hold nodes, the rest are scalars."""

    value: Any
    source: str
    line: int | None = None

    @property
    def is_mapping(self) -> bool:
        """Whether it holds nodes by key."""
        return isinstance(self.value, dict)


def plant(value: object, source: str, depth: int = 0) -> Node:
    """Turn a plain value, such as a flag, into nodes.

    Raises:
        ValueError: the value is nested too deeply to be a setting.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        return Node({str(key): plant(item, source, depth + 1) for key, item in value.items()}, source)
    if isinstance(value, (list, tuple)):
        return Node([plant(item, source, depth + 1) for item in value], source)
    return Node(str(value) if isinstance(value, PurePath) else value, source)


def plain(node: Node) -> Any:
    """The value without places; keys without a value are left out, so that they mean the default."""
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items() if item.value is not None}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def merge(below: Node, above: Node) -> Node:
    """Lay *above* over *below*: mappings are merged, everything else is replaced."""
    if not (below.is_mapping and above.is_mapping) or _is_reference(above):
        return above
    merged = dict(below.value)
    for key, item in above.value.items():
        merged[key] = merge(merged[key], item) if key in merged else item
    place = below if above.line is None else above
    return Node(merged, place.source, place.line)


def _is_reference(node: Node) -> bool:
    """Whether this is ``{env: NAME}`` or ``{file: path}``; merged, they would be two sources of one secret."""
    items: dict[str, Node] = node.value
    return bool(items) and items.keys() <= {"env", "file"} and not any(item.is_mapping for item in items.values())


def flatten(node: Node) -> Node:
    """Write nested tables of option names as dotted names: ``{a: {b: 1}}`` is ``{"a.b": 1}``."""
    flat = dict(_flat(node, ())) if node.is_mapping else {}
    return Node(flat, node.source, node.line) if node.is_mapping else node


def _flat(node: Node, above: tuple[str, ...]) -> Iterator[tuple[str, Node]]:
    for key, item in node.value.items():
        if item.is_mapping and not _is_reference(item):
            yield from _flat(item, (*above, key))
        else:
            yield ".".join((*above, key)), item


def find(root: Node, path: Sequence[str | int]) -> Node:
    """The node at *path*, or the nearest one above it that exists."""
    node = root
    for part in path:
        inside: Any = node.value
        if isinstance(inside, list) and isinstance(part, int) and part < len(inside):
            node = inside[part]
            continue
        if not isinstance(inside, dict) or part not in inside:
            break
        node = inside[part]
    return node


def prune(root: Node, path: Sequence[str | int]) -> Node:
    """A copy without the mapping entry at *path*; an item of a list takes the whole list with it."""
    if not path or not isinstance(root.value, dict) or path[0] not in root.value:
        return root
    items: Mapping[str, Node] = root.value
    head, rest = str(path[0]), path[1:]
    if rest and items[head].is_mapping and rest[0] in items[head].value:
        return Node({**items, head: prune(items[head], rest)}, root.source, root.line)
    return Node({key: item for key, item in items.items() if key != head}, root.source, root.line)


def dotted(path: Sequence[str | int]) -> str:
    """Write a path for a message: ``clusters.main.brokers[0]``; control characters are escaped."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if part.isprintable() else ascii(part)[1:-1]
            text += f".{_short(name)}" if text else _short(name)
    return text


def shown(value: object) -> str:
    """Write a value for a message: short, on one line, escaped."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "nothing"}[value]
    if isinstance(value, (dict, list, tuple)):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, (str, int, float, timedelta)):
        return _short(repr(value)) if not isinstance(value, int) or value.bit_length() < 128 else "a huge number"
    return f"a {type(value).__name__}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
