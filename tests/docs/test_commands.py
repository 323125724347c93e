"""Every command has help, and mistakes get an answer instead of a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.main import get_command

from support.doors import every_command

COMMAND = get_command(every_command)


def laneway(*words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "laneway.cli", *words], capture_output=True, text=True, check=False, cwd=cwd
    )


def label(value):
    return "-".join(value) if isinstance(value, tuple) else ""


def walk(command, path=()):
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from walk(child, (*path, name))


@pytest.mark.parametrize(("path", "command"), list(walk(COMMAND)), ids=label)
def test_a_command_and_its_options_have_help(path, command):
    """Nothing is left to guess."""
    assert command.help, path
    bare = [option.name for option in command.params if not getattr(option, "help", "")]
    assert bare == [], path


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["rum"], 2, "No such command"),
        (["run"], 2, "Missing argument"),
        (["run", "nowhere:app"], 2, "there is no module 'nowhere'"),
        (["run", "shop.py"], 2, "write module:app, for example shop:app"),
        (["run", "json:app"], 2, "module 'json' has no App at all"),
        (["run", "shop:ap"], 2, "did you mean shop:app?"),
        (["run", "broken:app"], 2, "importing 'broken' failed at broken.py:1: ZeroDivisionError"),
        (["run", "shop:app", "--config", "absent.yaml"], 2, "absent.yaml"),
        (["run", "shop:app", "--config", "bad.yaml"], 2, "bad.yaml:3: handlers.charge.lanez"),
        (["run", "single:app", "--config", "size.yaml"], 2, "size.yaml:3: handlers.charge.size: it has no effect"),
        (["config", "check", "--config", "bad.yaml"], 2, "Fix:"),
        (["bench", "w9"], 2, "w9"),
    ],
)
def test_a_mistake_is_answered_without_a_traceback(words, code, part, tmp_path):
    """Wrong commands, apps and files end with exit code 2, what is wrong, and what to write instead."""
    (tmp_path / "shop.py").write_text("from laneway import App\napp = App('shop')\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "bad.yaml").write_text("default:\n  handlers:\n    charge: {lanez: 3}\n")
    (tmp_path / "single.py").write_text(
        "from laneway import App, Topic\napp = App('shop')\n@app.handler(Topic('orders'))\ndef charge(record): ...\n"
    )
    (tmp_path / "size.yaml").write_text("default:\n  handlers:\n    charge: {size: 3}\n")
    done = laneway(*words, cwd=tmp_path)
    assert code == done.returncode, done.stderr
    assert part in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_an_app_without_handlers_is_refused():
    """There is nothing to run, and the message says how to declare a handler."""
    from laneway import App
    from laneway.errors import DeclarationError

    with pytest.raises(DeclarationError, match=r"declare one with @app\.handler"):
        App("empty").run()
