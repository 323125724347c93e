"""Reads YAML into nodes with line numbers, from parser events only, so it never constructs objects.

Plain words follow YAML 1.2, so ``yes``, ``on`` and ``22:22`` are text, and only ``true``/``false`` are booleans.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from laneway.errors import Problem
from laneway.settings._located_values import MAX_DEPTH, Node, dotted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["read"]

MAX_BYTES = 1024 * 1024
MAX_ALIASES = 20
MAX_NODES = 50_000
"""Limit of all aliases after expansion; 20 aliases of aliases could otherwise expand to billions."""

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?([0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18})([eE][-+]?[0-9]{1,2})?")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_SWITCHES = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


class _HopelessError(Exception):
    """The rest of the file cannot be read."""

    def __init__(self, line: int | None, message: str, fix: str, key: str = "") -> None:
        super().__init__(message)
        self.place = (line, key, message, fix)


def read(path: Path) -> tuple[Node | None, list[Problem]]:
    """Read a file, and report what cannot be read. None: the rest cannot be checked."""
    source = str(path)
    reader = _Reader(source)
    try:
        return reader.document(_text(path)), reader.problems
    except _HopelessError as hopeless:
        line, key, message, fix = hopeless.place
        reader.problems.append(Problem(source, line, key, message, fix))
        return None, reader.problems


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _HopelessError(None, "the file does not exist", "give the path of an existing file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _HopelessError(None, f"the file cannot be read: {reason}", "give a readable file") from None
    if len(data) > MAX_BYTES:
        raise _HopelessError(None, "the file is larger than 1 MiB", "keep only settings in it") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _HopelessError(line, "the file is not UTF-8 text", "save the file as UTF-8") from None


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


@dataclass
class _Reader:
    """Builds nodes from the events of one file. Used once, by one thread."""

    source: str
    problems: list[Problem] = field(default_factory=list)
    anchors: dict[str, tuple[Node, int, int]] = field(default_factory=dict)
    aliases: int = 0
    nodes: int = 0

    def document(self, text: str) -> Node:
        events: Iterator[Any] = self._events(text)
        node = Node(None, self.source, 1)
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    line = _line(event)
                    raise _HopelessError(line, "the file holds more than one document", "remove the '---' line")
                node, _ = self._node(next(events), events, ())
        return node

    def _events(self, text: str) -> Iterator[Any]:
        # The parser in Python needs many seconds for a megabyte, which would allow a denial of service.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            yield from yaml.parse(text, Loader=loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else None
            what = error.problem or "it cannot be read"
            fix = "check the indentation, the quotes and the space after each colon"
            raise _HopelessError(line, f"this is not YAML: {what}", fix) from None
        except yaml.YAMLError as error:
            position = getattr(error, "position", None)
            line = text[:position].count("\n") + 1 if isinstance(position, int) else None
            raise _HopelessError(line, "there is a character that YAML forbids", "remove control characters") from None

    def _node(self, event: Any, events: Iterator[Any], path: tuple[str | int, ...]) -> tuple[Node, int]:
        """The node that starts at *event*, and how many levels it has."""
        line = _line(event)
        if len(path) > MAX_DEPTH:
            raise _HopelessError(line, f"it is nested more than {MAX_DEPTH} levels deep", "no setting is that deep")
        before = self.nodes
        self._count(1, line)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), line, path)
        value: Any
        depth = 1
        if isinstance(event, yaml.MappingStartEvent):
            value, depth = self._mapping(events, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            value, depth = self._sequence(events, path)
        else:
            value = self._scalar(event)
        if getattr(event, "tag", None) is not None:
            self._problem(
                line, path, "a tag is not allowed", "write a plain value; put one that begins with '!' in quotes"
            )
            value = None
        node = Node(value, self.source, line)
        if event.anchor:
            self.anchors[event.anchor] = (node, self.nodes - before, depth)
        return node, depth

    def _mapping(self, events: Iterator[Any], path: tuple[str | int, ...]) -> tuple[dict[str, Node], int]:
        items: dict[str, Node] = {}
        inherited: dict[str, Node] = {}
        depth = 1
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            line = _line(event)
            key = self._key(event, events, path)
            node, levels = self._node(next(events), events, (*path, key or "?"))
            depth = max(depth, levels + 1)
            if key == "<<" and event.implicit[0]:
                inherited.update(self._inherit(node, line, path))
            elif key in items:
                first = items[key].line
                message = f"the key is given twice, in line {first} and in line {line}"
                self._problem(line, (*path, key), message, "keep one of the two")
            elif key is not None:
                items[key] = Node(node.value, self.source, line)
        return {**inherited, **items}, depth

    def _key(self, event: Any, events: Iterator[Any], path: tuple[str | int, ...]) -> str | None:
        if isinstance(event, yaml.ScalarEvent) and event.tag is None:
            self._count(1, _line(event))
            return str(event.value)
        self._node(event, events, (*path, "?"))
        self._problem(_line(event), path, "a key must be plain text", "write 'name: value'")
        return None

    def _inherit(self, node: Node, line: int, path: tuple[str | int, ...]) -> dict[str, Node]:
        sources = node.value if isinstance(node.value, list) else [node]
        if not all(source.is_mapping for source in sources):
            self._problem(line, path, "'<<' takes a table", "write '<<: *name' with the anchor of a table")
            return {}
        # The first one wins in YAML, so later ones are applied first.
        return {key: item for source in reversed(sources) for key, item in source.value.items()}

    def _sequence(self, events: Iterator[Any], path: tuple[str | int, ...]) -> tuple[list[Node], int]:
        items: list[Node] = []
        depth = 1
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            node, levels = self._node(event, events, (*path, len(items)))
            items.append(node)
            depth = max(depth, levels + 1)
        return items, depth

    def _alias(self, name: str, line: int, path: tuple[str | int, ...]) -> tuple[Node, int]:
        self.aliases += 1
        if self.aliases > MAX_ALIASES:
            raise _HopelessError(line, f"the file has more than {MAX_ALIASES} aliases", "write the values out")
        if name not in self.anchors:
            # The name is not shown: it may be a password that begins with '*'.
            fix = "define '&name' first, or put a text that begins with '*' in quotes"
            self._problem(line, path, "an alias has no anchor before it", fix)
            return Node(None, self.source, line), 1
        node, size, depth = self.anchors[name]
        self._count(size, line)
        if len(path) + depth > MAX_DEPTH:
            raise _HopelessError(line, f"it is nested more than {MAX_DEPTH} levels deep", "write the values out")
        return node, depth

    def _count(self, size: int, line: int) -> None:
        self.nodes += size
        if self.nodes > MAX_NODES:
            raise _HopelessError(line, f"the file holds more than {MAX_NODES} values", "keep only settings in it")

    def _problem(self, line: int, path: tuple[str | int, ...], message: str, fix: str) -> None:
        # The profile is not part of the name of a setting.
        self.problems.append(Problem(self.source, line, dotted(path[1:] or path), message, fix))

    @staticmethod
    def _scalar(event: Any) -> object:
        text = str(event.value)
        if not event.implicit[0] or event.style:
            return text
        if text in _WORDS or text in _SWITCHES:
            return _SWITCHES.get(text)
        if _INTEGER.fullmatch(text):
            return int(text)
        return float(text) if _FLOAT.fullmatch(text) else text
