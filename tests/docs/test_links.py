"""Links between the documents, and from a promise to the test that shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page for folder in ("", "docs/", "examples/", "bench/", "bench/*/") for page in ROOT.glob(f"{folder}*.md")
)
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")


def links_of(page: Path) -> list[tuple[str, str]]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return LINK.findall(text)


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """A relative link names a file or folder of this tree, and an anchor a test or heading that exists."""
    for path, anchor in links_of(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {path}"
        if anchor.startswith("test_"):
            assert f"def {anchor}(" in target.read_text(), f"{page.name}: {path}#{anchor}"
        elif anchor:
            assert anchor in anchors_of(target), f"{page.name}: {path}#{anchor}"


def test_each_row_of_what_happens_when_has_a_test() -> None:
    """The table of failures promises nothing that no test shows."""
    text = (ROOT / "docs" / "failures.md").read_text()
    table = text[text.index("## What happens when") :].split("\n\n")[2]
    rows = table.splitlines()[2:]
    assert len(rows) > 20
    assert [row for row in rows if "#test_" not in row] == []
