"""What a broker writes before it dies becomes a reason and a fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from laneway.devkit.broker._process import diagnose, last_lines


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("java.net.BindException: Address already in use", "ports was in use"),
        ("java.io.IOException: No space left on device", "disk is full"),
        ("Invalid cluster.id in: /d/meta.properties", "/d belongs to another cluster"),
        ("java.lang.UnsupportedClassVersionError: kafka/Kafka", "Java is too old"),
        ("Failed to acquire lock on file .lock in /d", "another broker uses /d"),
    ],
)
def test_known_texts_become_reasons(line, reason):
    """Each known text gives its reason, a fix, and the line itself."""
    text = diagnose(f"INFO before\n{line}\nINFO after", Path("/d"))

    assert (reason in text, "Fix: " in text, text.endswith(line)) == (True, True, True)


def test_an_unknown_end_shows_the_last_lines():
    """Without a known text the last dozen lines are shown."""
    text = diagnose("\n".join(f"line {number}" for number in range(40)), Path("/d"))

    assert text.splitlines()[1:] == [f"  line {number}" for number in range(28, 40)]


def test_a_signal_from_outside_is_named():
    """A node that was killed did not end by itself, and the message says so."""
    assert "it was killed by signal 9. Fix: " in diagnose("INFO started", Path("/d"), -9)


def test_a_missing_log_has_no_lines(tmp_path):
    """A node that never wrote has an empty log."""
    assert last_lines(tmp_path / "node.log", 5) == []
