"""Each promise in DESIGN.md has a test that `make test` runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_BUILT = {"I21"}
"""Promises of parts that do not exist yet: the schema registry."""


def rows() -> dict[str, str]:
    """Number of a promise to what shows it."""
    text = (ROOT / "DESIGN.md").read_text()
    table = text[text.index("## What is promised") :].partition("\n## ")[0]
    cells = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| I")]
    return {cell[0].strip(): cell[2].strip() for cell in cells}


TESTS = sorted({link for shown in rows().values() for link in re.findall(r"\((tests/[^)#]+#test_\w+)\)", shown)})


def test_no_promise_is_missing():
    """All 33 are there, in order; those without a test are the ones that are not built."""
    assert list(rows()) == [f"I{number}" for number in range(1, 34)]
    assert {number for number, shown in rows().items() if "#test_" not in shown} == NOT_BUILT
    assert {rows()[number] for number in NOT_BUILT} == {"not built yet"}


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.partition("#")[2])
def test_what_shows_it_is_run(test):
    """The test exists, and neither it nor its module is left to `make soak` or always skipped."""
    path, name = test.split("#")
    module = ast.parse((ROOT / path).read_text())
    (function,) = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name]
    marks = [node.value for node in module.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)]
    texts = map(ast.unparse, [*function.decorator_list, *marks])
    text = " ".join(text for text in texts if "parametrize" not in text)  # one of several parameters may be left to it
    assert not re.search(r"mark\.(soak|skip|xfail)\b", text), text
