"""Links between the documents, and from a promise to the test that shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")])
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")


def links_of(page: Path) -> list[tuple[str, str]]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return LINK.findall(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """A relative link names a file or folder of this tree; one to a test names a test that exists."""
    for path, anchor in links_of(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {path}"
        if anchor.startswith("test_"):
            assert f"def {anchor}(" in target.read_text(), f"{page.name}: {path}#{anchor}"


def test_each_row_of_what_happens_when_has_a_test() -> None:
    """The table of failures promises nothing that no test shows."""
    text = (ROOT / "docs" / "failures.md").read_text()
    table = text[text.index("## What happens when") :].split("\n\n")[2]
    rows = table.splitlines()[2:]
    assert len(rows) > 20
    assert [row for row in rows if "#test_" not in row] == []
