"""The files of bench/results: found, read, merged and written. Every figure knows when it was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["RESULTS", "merged", "newest", "read", "write"]

RESULTS = Path(__file__).with_name("results")
_DATE = len("2026-11-15")


def newest(kind: str, folder: Path = RESULTS) -> Path | None:
    """The newest file of a kind, which is the end of its name: its name begins with its day."""
    return max(folder.glob(f"????-??-??-{kind}.json"), default=None)


def read(path: Path | None) -> dict[str, Any]:
    """A file's facts and figures; none if there is no file."""
    if path is None or not path.exists():
        return {"results": []}
    facts = json.loads(path.read_text())
    for entry in facts["results"]:
        # Figures from before each kept its own time have the day of their file.
        entry.setdefault("measured", path.name[:_DATE])
    return facts


def merged(
    before: dict[str, Any], entries: Iterable[dict[str, Any]], machine: dict[str, Any], order: Sequence[str] = ()
) -> dict[str, Any]:
    """What was measured now in the place of what was measured before; everything else stays.

    The machine's facts are those of the newest figures. A figure that was measured on another machine, or with other
    versions, keeps its own.

    Args:
        before: facts and figures of a file.
        entries: new figures, each with its ``command``.
        machine: facts of the machine that measured them.
        order: of the commands in the file; those it does not name come last.
    """
    found = {entry["command"]: _with_machine(entry, before["machine"], machine) for entry in before["results"]}
    found |= {entry["command"]: entry for entry in entries}
    places = {command: place for place, command in enumerate(order)}
    results = sorted(found.values(), key=lambda entry: places.get(entry["command"], len(places)))
    return {"machine": machine, "results": results}


def _with_machine(entry: dict[str, Any], file: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    own = entry.get("machine", file)
    bare = {name: value for name, value in entry.items() if name != "machine"}
    return bare if own == now else {**bare, "machine": own}


def write(path: Path, facts: dict[str, Any]) -> None:
    """Write a file completely or not at all: an interrupted run keeps the previous one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(facts, indent=1) + "\n")
    draft.replace(path)
