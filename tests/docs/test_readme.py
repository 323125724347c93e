"""Every snippet and command of the README works."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)```", re.DOTALL)
BLOCKS = [match.groupdict() for match in BLOCK.finditer(README)]
COMMANDS = [
    line.removeprefix("$ ")
    for block in BLOCKS
    if block["kind"] == "console"
    for line in block["text"].splitlines()
    if line.startswith("$ ")
]
SNIPPETS = [block["text"] for block in BLOCKS if block["kind"] == "python" and block["file"] != "produce.py"]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_a_snippet_runs(snippet):
    """Python examples run as they stand."""
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_readme_is_short():
    """Details have a page in docs."""
    assert len(README.splitlines()) <= 200


def test_make_targets_exist():
    """The commands that a newcomer types first are real targets."""
    for target in ("demo", "test", "unit", "setup"):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (target, 0) == (target, done.returncode)
        assert f"make {target}" in README


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
def test_the_commands_do_what_the_readme_says(tmp_path):
    """A newcomer's session, in an empty folder, from the first command to the last."""
    from laneway.devkit.broker import home_directory, is_free

    for block in BLOCKS:
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["text"])
    home = tmp_path / "home"
    home.mkdir()
    for shared in ("kafka", "spark"):  # what `make setup` fetched and built
        (home / shared).symlink_to(home_directory() / shared)
    port = next(port for port in range(19092, 19192) if is_free(port))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LANEWAY_HOME": str(home),
        "LANEWAY_BROKERS": f"127.0.0.1:{port}",
    }
    outputs = {}
    try:
        for command in COMMANDS:
            if command.startswith("make "):
                continue
            # The only change: a port that is free on this machine.
            words = shlex.split(command) + (["--port", str(port)] if command == "laneway kafka start" else [])
            done = subprocess.run(
                words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=180
            )
            outputs[command] = done.stdout
            assert (command, 0) == (command, done.returncode), done.stderr
    finally:
        stop = [shutil.which("laneway", path=environment["PATH"]) or "laneway", "kafka", "stop"]
        subprocess.run(stop, env=environment, capture_output=True, check=False, timeout=60)
    expected = re.search(r"`(5,000 read: [^`]+)`", README)
    assert expected is not None
    assert outputs["laneway run billing:app --once"].splitlines()[-1] == expected[1]
