"""The section `errors`: when parked records are run again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from laneway.errors import SettingsError
from laneway.settings import load


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "laneway.yaml"
        path.write_text(f"default:\n  errors:\n{text}")
        return path

    return write


def test_all_of_it_can_be_written(written):
    """What is not written is as the code declares it."""
    text = '    cron: "*/15  8-18 * * mon-fri"\n    max_errors: 3\n    stop_when_new: 90s\n    action: Replay\n'
    errors = load(written(text)).errors
    assert (errors.cron, errors.max_errors) == ("*/15 8-18 * * mon-fri", 3)
    assert (errors.stop_when_new, errors.action) == (timedelta(seconds=90), "replay")
    assert (errors.enabled, errors.stop_when_idle) == (None, None)


def test_a_variable_switches_it_off(written):
    """For the machine that is not to run them."""
    path = written('    cron: "0 * * * *"\n')
    assert load(path, environ={"LANEWAY__ERRORS__ENABLED": "false"}).errors.enabled is False


@pytest.mark.parametrize(
    ("line", "key", "part"),
    [
        ('cron: "* * * *"', "errors.cron", "has 4 fields"),
        ('cron: "0 25 * * *"', "errors.cron", "'25' cannot be the hour of a schedule"),
        ("cron: 15", "errors.cron", "put it in quotes"),
        ("max_errors: -1", "errors.max_errors", "from 0 to"),
        ("stop_when_new: 5", "errors.stop_when_new", "has no unit"),
        ("action: drop", "errors.action", "handle"),
        ("schedule: hourly", "errors.schedule", "cron"),
    ],
)
def test_a_mistake_is_named_with_its_line(written, line, key, part):
    """Before anything is connected to."""
    with pytest.raises(SettingsError) as raised:
        load(written(f"    {line}\n"))
    (problem,) = raised.value.problems
    assert (problem.line, problem.key) == (3, key)
    assert part in str(problem)


def test_a_schedule_without_quotes_is_explained(written):
    """A star begins an alias in YAML."""
    with pytest.raises(SettingsError, match=r"laneway\.yaml:3: .*check the indentation, the quotes"):
        load(written("    cron: */15 * * * *\n"))
