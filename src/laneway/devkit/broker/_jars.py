"""The pinned jars of the development broker, and the proof that a folder holds exactly these."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["jar_problems", "pinned_jars"]


@cache
def pinned_jars() -> Mapping[str, str]:
    """Give the SHA-256 of every jar, by file name."""
    lines = Path(__file__).with_name("_jars.sha256").read_text(encoding="ascii").splitlines()
    pairs = (line.split() for line in lines if line)
    return MappingProxyType({name: digest for digest, name in pairs})


def jar_problems(directory: Path, pins: Mapping[str, str] | None = None) -> list[str]:
    """Say in what way *directory* differs from the pinned jars; empty when it is whole.

    Every byte is hashed (44 MB, about 0.15 s): sizes alone would not notice a tampered jar.
    A jar that is not pinned counts too, because the class path takes every jar in the folder.
    """
    expected = pinned_jars() if pins is None else pins
    if not directory.is_dir():
        return ["the folder is missing"]
    present = {path.name: path for path in directory.glob("*.jar")}
    problems = [f"{name} is missing" for name in sorted(expected.keys() - present.keys())]
    problems += [f"{name} does not belong here" for name in sorted(present.keys() - expected.keys())]
    for name in sorted(expected.keys() & present.keys()):
        with present[name].open("rb") as jar:
            if hashlib.file_digest(jar, "sha256").hexdigest() != expected[name]:
                problems.append(f"{name} has other content than the pinned one")
    return problems
