"""Every snippet, configuration and command of the pages in docs works."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from laneway.settings import load
from support.doors import every_command

ROOT = Path(__file__).parents[2]
PAGES = {page.name: page.read_text() for page in sorted(ROOT.glob("docs/*.md"))}
TEXTS = PAGES | {name: (ROOT / name).read_text() for name in ("README.md", "examples/README.md")}
ONE_PROGRAM = {"testing.md"}
"""Pages whose snippets build on each other."""


def blocks(text, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def programs():
    for name, page in PAGES.items():
        found = blocks(page, "python")
        found = ["\n".join(found)] if name in ONE_PROGRAM else found
        for number, snippet in enumerate(found, 1):
            yield pytest.param(snippet, id=f"{name}-{number}")


def configurations():
    for name, page in PAGES.items():
        for number, text in enumerate(blocks(page, "yaml"), 1):
            yield pytest.param(text, id=f"{name}-{number}")


def commands():
    for name, text in TEXTS.items():
        for block in blocks(text, "console"):
            for line in block.splitlines():
                if "laneway " in line and line.startswith("$ "):
                    yield pytest.param(line[line.index("laneway ") :], id=f"{name}-{line}")


@pytest.mark.parametrize("snippet", list(programs()))
def test_a_snippet_runs(snippet):
    """Python snippets run as they stand, without output on stderr."""
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", list(configurations()))
def test_a_configuration_is_valid(text, tmp_path):
    """Each YAML snippet loads without a warning, in every profile."""
    path = tmp_path / "laneway.yaml"
    path.write_text(text)
    (tmp_path / "ca.pem").write_text("x")
    for profile in re.findall(r"^(\w+):", text, re.MULTILINE):
        assert load(path, profile=profile, environ={"KAFKA_PASSWORD": "x"}).warnings == ()


@pytest.mark.parametrize("line", list(commands()))
def test_a_command_exists(line):
    """The command has all options that the page uses."""
    words = shlex.split(line)[1:]
    command = get_command(every_command)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    assert not hasattr(command, "commands"), f"no such command: {line}"
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word.split("=")[0] for word in words if word.startswith("--")} <= known
