"""What the tests of commands share: an app in a folder of its own, and the command in this process."""

from __future__ import annotations

import sys
import uuid

import pytest

from laneway.cli import main

SHOP = """
from laneway import App, ErrorConsumer, Topic
app = App("shop", errors=ErrorConsumer(max_errors=3))
empty = App("empty")
@app.handler(Topic("orders"))
def charge(record): ...
@app.handler(Topic("returns"))
def refund(record): ...
"""


@pytest.fixture
def errors_command(tmp_path, monkeypatch, capsys):
    """Runs `laneway errors` on an app in this folder; returns exit code, output and the words of stderr."""
    name = f"shop{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for variable in ("LANEWAY_CONFIG", "LANEWAY_PROFILE", "LANEWAY_BROKERS", "LANEWAY_DEBUG"):
        monkeypatch.delenv(variable, raising=False)

    def run(verb, *words, app="app"):
        monkeypatch.setattr(sys, "argv", ["laneway", "errors", verb, f"{name}:{app}", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return ended.value.code, written.out, " ".join(written.err.split())

    return run
