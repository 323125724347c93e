"""The shape of the tree, kept by tests."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import laneway

SOURCE = Path(laneway.__file__).parent
ROOT = Path(__file__).parents[2]
MODULES = sorted(SOURCE.rglob("*.py"))
PURE = ("_core", "observe", "codecs")
ABOVE = ("contract", "scenarios", "docs", "support")
TOO_LONG: dict[str, str] = {}
"""Modules that may be longer than 400 lines, each with a reason."""


def imports_of(path: Path) -> set[str]:
    """Top-level names of what a module imports at run time."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_no_module_is_longer_than_four_hundred_lines():
    """A module that grew past 400 lines has more than one subject."""
    long = [path.name for path in MODULES if len(path.read_text().splitlines()) > 400 and path.name not in TOO_LONG]
    assert long == []


@pytest.mark.parametrize("room", PURE)
def test_pure_rooms_have_no_clock_thread_or_socket(room):
    """What decides order and loss gets the time from outside, so that it can be simulated."""
    forbidden = {"threading", "time", "socket", "subprocess", "multiprocessing", "os"}
    modules = {path for path in (SOURCE / room).glob("*.py") if path.name != "_registry.py"}  # a client of a server
    found = {path.name: imports_of(path) & forbidden for path in modules}
    assert {name: set() for name in found} == found


def test_importing_laneway_is_light():
    """`import laneway` loads no engine, client or configuration library."""
    code = "import sys, laneway; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"pyspark", "confluent_kafka", "pyarrow", "pydantic", "yaml", "rich", "typer", "numpy", "pandas", "asyncio"}
    assert set() == heavy & set(loaded) - {"asyncio"}


def test_every_public_name_exists_and_is_documented():
    """`__all__` names real things, and each of them has a docstring."""
    for name in laneway.__all__:
        assert getattr(laneway, name).__doc__, name


def test_no_name_hides_what_it_owns():
    """No Manager, Helper, Util or Impl."""
    bad = ("Manager", "Helper", "Util", "Impl")
    names = [
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name in names if name.endswith(bad)] == []


def test_only_doors_reach_into_private_rooms():
    """Tests above the unit tests import private names through one module, so that moving a name changes one file."""
    tests = Path(__file__).parents[1]
    doors = {
        tests / "support" / name for name in ("doors.py", "core.py", "stations.py", "watched.py")
    }  # the last: unit tests
    above = [*tests.glob("*.py"), *(path for room in ABOVE for path in (tests / room).rglob("*.py"))]
    assert len(above) > 100
    private = re.compile(r"laneway(\.[a-z]+)*\._")
    bad = {
        f"{path.relative_to(tests)}: {node.module}"
        for path in set(above) - doors
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and private.match(node.module or "")
    }
    assert bad == set()


def rows_of(page, heading):
    """The rows of the first table below a heading."""
    lines = (ROOT / page).read_text().partition(f"\n## {heading}\n")[2].splitlines()
    below = itertools.dropwhile(lambda line: not line.startswith("|"), lines)
    table = itertools.takewhile(lambda line: line.startswith("|"), below)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in list(table)[2:]]


def test_each_room_has_a_question_in_contributing():
    """The table names files and folders that exist, at least one in each room."""
    found = [path for row in rows_of("CONTRIBUTING.md", "Where things are") for path in re.findall("`([^`]+)`", row[1])]
    assert [path for path in found if not (SOURCE / path).exists()] == []
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert {path.split("/")[0] for path in found} == rooms


def test_what_to_open_exists():
    """In *To change X, open Y* a name without a folder is in the folder of one before it."""
    missing = []
    for _what, cell in rows_of("DESIGN.md", "To change X, open Y"):
        folders = [SOURCE, ROOT]
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", cell):
            found = [folder / name for folder in folders if (folder / name).exists()]
            missing += [] if found else [name]
            folders += [path if path.is_dir() else path.parent for path in found]
    assert missing == []


def test_only_the_cli_writes_to_the_terminal():
    """Everything else logs or emits an event. The rooms left out still write lines themselves; none may be added."""
    rooms = ("cli", "_runtime", "_engines")
    paths = [path for path in MODULES if path.relative_to(SOURCE).parts[0] not in rooms]
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"sys.stdout", "sys.stderr"}
    ]
    assert found == []
