"""Health as a value, and sentences about what stands still."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from laneway._declare.health import Health, Level, Reason, Stall, key_words, lasting

ROOT = Path(__file__).parents[3]
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def reason(level, code="x", minutes=0):
    return Reason(level, code, f"words of {code}", NOON + timedelta(minutes=minutes))


def test_no_reason_is_good_health():
    """Nothing to tell is OK, not unknown."""
    health = Health.of([])

    assert (health.level, health.is_ok, str(health)) == (Level.OK, True, "OK")


def test_health_is_as_bad_as_its_worst_reason():
    """The worst comes first, and of equals the one that has lasted longest."""
    health = Health.of(
        [
            reason(Level.OK, "paused"),
            reason(Level.CRITICAL, "new", 5),
            reason(Level.WARNING, "breaker-open"),
            reason(Level.CRITICAL, "old"),
        ]
    )

    assert health.level is Level.CRITICAL
    assert [each.code for each in health.reasons] == ["old", "new", "breaker-open", "paused"]
    assert health.has("breaker-open")
    assert not health.has("stalled")


def test_levels_have_an_order():
    """An alarm may ask for a warning or worse."""
    assert Level.OK < Level.WARNING < Level.CRITICAL
    assert str(Level.WARNING) == "WARNING"


def test_health_is_a_value():
    """It is compared by what it says, and it cannot be changed."""
    assert Health.of([reason(Level.OK)]) == Health.of([reason(Level.OK)])
    with pytest.raises(AttributeError):
        Health.of([]).level = Level.CRITICAL


def test_health_as_plain_values():
    """JSON gets level, code, words and an aware time."""
    assert Health.of([reason(Level.WARNING, "stalled")]).as_dict() == {
        "level": "WARNING",
        "reasons": [
            {
                "level": "WARNING",
                "code": "stalled",
                "words": "words of stalled",
                "since": "2026-01-31T12:00:00+00:00",
            }
        ],
    }


def test_a_stall_is_a_sentence():
    """It names partition, offset, key, age and cause."""
    stall = Stall(
        "running", "orders", 3, 1234, timedelta(seconds=125.4), "handler 'charge' has been running for 2m5s", "charge",
        b"42", has_key=True,
    )  # fmt: skip

    assert str(stall) == "orders[3]@1234 (key 42) has not moved for 2m5s: handler 'charge' has been running for 2m5s"
    assert stall.as_dict()["sentence"] == str(stall)


def test_a_stall_without_a_record_says_nothing_of_a_key():
    """A record that was not looked at has an unknown key, which is not the same as none."""
    unknown = Stall("unread", "orders", 0, 7, timedelta(seconds=40), "3 records wait to be read")
    keyless = Stall("lane", "orders", 0, 7, timedelta(seconds=40), "it waits", "charge", None, has_key=True)

    assert str(unknown) == "orders[0]@7 has not moved for 40s: 3 records wait to be read"
    assert str(keyless) == "orders[0]@7 (key none) has not moved for 40s: it waits"
    assert (unknown.as_dict()["key"], keyless.as_dict()["key"]) == (None, "none")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, "none"),
        (b"", "hex:"),
        (b"customer-7", "customer-7"),
        (b"\x1b[2J", "hex:1b5b324a"),
        (b"\xff\x00", "hex:ff00"),
        (b"x" * 50, "x" * 40 + "…"),
    ],
)
def test_a_key_is_fit_for_a_line(key, expected):
    """A key that would move the cursor or is no text is shown in hexadecimal, a long one is cut."""
    assert key_words(key) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-1, "0s"), (0.04, "0s"), (1.26, "1.3s"), (3.0, "3s"), (59.9, "59s"), (125.4, "2m5s"), (7_265, "2h1m")],
)
def test_a_time_span_is_said_in_few_words(seconds, expected):
    """The milliseconds of an hour do not matter, and nothing lasts less than no time."""
    assert lasting(seconds) == expected


def test_the_page_about_health_names_every_code():
    """Programs go by codes: none is missing from docs/health.md, and none stands there that is never given."""
    page = (ROOT / "docs" / "health.md").read_text()
    tables = [part for part in page.split("\n\n") if part.startswith("| code |")]
    cells = [row.split("|")[1] for table in tables for row in table.splitlines()[2:]]
    named = {code for cell in cells for code in re.findall(r"`([a-z-]+)`", cell)}
    source = ROOT / "src/laneway"
    files = [
        *(source / "_runtime/health").glob("*.py"), *(source / "_engines").rglob("*.py"), source / "_core/locate.py",
        source / "_runtime/monitor.py", source / "cli/_why.py",
    ]  # fmt: skip
    source = "".join(path.read_text() for path in files)
    given = {code for form in (r'case "([a-z-]+)"', r'code="([a-z-]+)"', r'return "([a-z-]+)", f"')
             for code in re.findall(form, source)}  # fmt: skip
    given |= set(re.findall(r'Level\.[A-Z]+,\s*"([a-z-]+)"', source)) | {"brokers-unreachable", "topic-missing"}
    states = {"initialising", "starting", "stopping", "stopped", "closing", "closed"}

    assert named - states == given - {"untaken", "unknown"}
    assert states <= named


def test_the_example_of_the_page_runs():
    """As it stands, without a broker."""
    page = (ROOT / "docs" / "health.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "docs/health.md", "exec"), {"__name__": "watched"})  # noqa: S102 - our own page
