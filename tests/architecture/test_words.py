"""Plain words in the package and its documentation."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

import laneway

SOURCE = Path(laneway.__file__).parent
ROOT = Path(__file__).parents[2]

BANNED = {
    r"\banew\b": "again; recreated",
    r"\b(whoever|somebody|nobody)\b": "name it: a process, a user, no member",
    r"\b(is|are|be|was|were|been|being) told\b": "is called with; receives; learns",
    r"\b(tells|told)\b": "reports; says; returns",
    r"\bby hand\b": "manually",
    r"\bin good order\b": "cleanly",
    r"\bshared? out\b": "assigned; rebalancing",
    r"\bwhat (holds|held) .{0,20}\bup\b": "what blocks",
    r"\bgets? on\b": "makes progress",
    r"\bfor ever\b": "forever",
    r"\b(takes|taken) up\b": "handles; starts",
    r"\bmade of it\b|\bwhat becomes? of\b": "what happens to",
    r"\blet go\b|\blets? the interpreter go\b": "release",
}
"""Turns of phrase that a reader has to guess at, each with what to write instead."""

BANNED_NEXT = {
    r"\bfor good\b": "finally; permanently",
    r"\b(hears?|heard)\b": "receives; learns",
    r"\b(is|are|stays|stay) out\b(?! of)": "busy; not available",
    r"\bby turns\b": "in turn; alternately",
    r"\bso many (?!\w+ that)": "this many; how many",
    r"\blooked up meanwhile\b": "looked up since then",
    r"\bat (its?|their) work\b": "running",
    r"\bnot there\b": "missing; does not exist",
    r"\b(goes on|continues?|recovers) by itself\b": "resumes automatically",
    r"\basks? for a retry\b": "requests a retry",
    r"\b(bring|brings) along\b": "contain",
    r"\b(is|are) well\b": "healthy",
    r"\bwell-kept\b|\bbest-kept\b": "maintained",
    r"\bdeaf to\b": "ignores",
}
"""More of them, for what is read by users and for the rooms that are free of them."""

NOT_YET = ("_runtime", "_engines", "DESIGN.md")
"""Rooms and pages that still have such words. The list only shrinks."""

NEXT_NOT_YET = (*NOT_YET, "_core", "_kafka", "testing", "bench")
"""The same for the second list."""

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "DESIGN.md")]
PLACES = [
    *(path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] not in NOT_YET),
    *(path for path in PAGES if path.name not in NOT_YET),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "bench").rglob("*.py")),
    *sorted((ROOT / "bench").glob("*.md")),
]


TESTS = Path(__file__).parents[1]
TESTS_NOT_YET = ("unit/core", "unit/engines", "unit/runtime", "architecture")
"""Tests that still have such words, or must have them, such as these."""

TEST_MODULES = [
    path for path in sorted(TESTS.rglob("*.py")) if not path.relative_to(TESTS).as_posix().startswith(TESTS_NOT_YET)
]


def prose_of(path, kinds=("",)):
    """The numbered lines of a page, or of the comments and texts of a module that begin with one of *kinds*."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}:
            if not token.string.startswith(kinds):
                continue
            words = re.sub(r"\{[^{}]*\}", "…", token.string)  # names inside an f-string are code
            yield from enumerate(words.splitlines(), token.start[0]) if " " in words else ()


def banned_in(lines, phrases=BANNED):
    """Number, line and better words of each line with a banned phrase."""
    return [
        f"{number}: {line.strip()} (write: {instead})"
        for number, line in lines
        for pattern, instead in phrases.items()
        if re.search(pattern, line, re.IGNORECASE)
    ]


def phrases_for(path):
    """The banned phrases of a place."""
    room = path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT).parts[0]
    return BANNED if room in NEXT_NOT_YET else BANNED | BANNED_NEXT


@pytest.mark.parametrize("path", PLACES, ids=lambda path: str(path.relative_to(ROOT)))
def test_texts_use_plain_words(path):
    """Comments, docstrings, messages and pages say it as an engineer would say it aloud."""
    assert banned_in(prose_of(path), phrases_for(path)) == []


def test_tests_use_plain_words():
    """Comments and docstrings of tests do so too; their data may be anything."""
    found = {
        f"{path.relative_to(TESTS)}:{line}"
        for path in TEST_MODULES
        for line in banned_in(prose_of(path, kinds=("#", '"""')))
    }
    assert found == set()
    assert len(TEST_MODULES) > 100


@pytest.mark.parametrize("line", ["# somebody is told", '"""It is made anew."""', 'x = f"nobody {y} gets on"'])
def test_a_banned_phrase_is_found(line, tmp_path):
    """In comments, docstrings and texts; names of functions are free."""
    path = tmp_path / "module.py"
    path.write_text(f"{line}\nstream.tell()\n")
    assert [found.split(":")[0] for found in banned_in(prose_of(path))][:1] == ["1"]
    path.write_text("told = stream.tell()\n")
    assert banned_in(prose_of(path)) == []
