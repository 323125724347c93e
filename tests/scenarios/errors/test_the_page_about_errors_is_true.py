"""Every command of docs/errors.md that needs no Spark works as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from support.errors_scene import Row

pytestmark = pytest.mark.broker

PAGE = (Path(__file__).parents[3] / "docs" / "errors.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ laneway errors ((?:list|show|replay|drop) .*)$", PAGE, re.MULTILINE)


def test_the_commands_of_the_page_work(scene):
    """One after the other, with the app of the test in place of the one of the page."""
    assert len(COMMANDS) > 8
    scene.park([Row(b"41", b"v"), Row(b"42", b"{}")], "ConnectionError")
    for command in COMMANDS:
        verb, target, *words = shlex.split(command)
        assert (command, target) == (command, "billing:app")
        done = scene.errors(verb, *words)
        assert (command, done.code) == (command, 0), done.err
    assert (len(scene.source()), scene.open()) == (2, [])


def test_the_options_of_the_page_exist():
    """No option is named that the commands do not have."""
    from typer.main import get_command

    from support.doors import error_commands

    known = {
        name for each in get_command(error_commands).commands.values() for option in each.params for name in option.opts
    }
    assert {option for option in re.findall(r"`(--[a-z-]+)", PAGE) if option not in known} == set()
