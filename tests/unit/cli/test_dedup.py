"""``laneway dedup``: ids in a store, looked at and forgotten."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from laneway.dedup import SqliteDedup

APP = """
from laneway import App, Topic, by_header
from laneway.dedup import SqliteDedup

app = App("shop", dedup=SqliteDedup("ids.db", id=by_header("id")))

@app.handler(Topic("orders"))
def pay(record): ...

if {several}:
    @app.handler(Topic("others"))
    def send(record): ...
"""


@pytest.fixture
def laneway(tmp_path):
    def run(*arguments, several=False):
        (tmp_path / "shop_app.py").write_text(APP.replace("{several}", str(several)))
        command = [sys.executable, "-m", "laneway.cli", "dedup", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_an_id_is_looked_at_and_forgotten(laneway, tmp_path):
    """Absent, done, forgotten; the exit code says whether it was known."""
    found = laneway("get", "shop_app:app", "42")
    assert (found.returncode, found.stdout) == (1, "42: absent; a record with this id is handled\n")
    SqliteDedup(tmp_path / "ids.db").put("42", scope="shop.pay")
    found = laneway("get", "shop_app:app", "42")
    assert found.returncode == 0
    assert found.stdout.startswith("42: done, remembered until ")
    found = json.loads(laneway("get", "shop_app:app", "42", "--json").stdout)
    assert (found["state"], found["handler"], found["id"]) == ("done", "shop.pay", "42")
    assert laneway("forget", "shop_app:app", "42").stdout == "42: forgotten\n"
    assert laneway("forget", "shop_app:app", "42").returncode == 1


def test_a_claimed_id_names_its_owner(laneway, tmp_path):
    """So that an operator knows whether its process still lives."""
    session = SqliteDedup(tmp_path / "ids.db").session("shop.pay", "host/7/abc")
    session.claim(["42"], [b"x" * 16])
    session.close()
    assert laneway("get", "shop_app:app", "42").stdout.startswith("42: claimed by host/7/abc, for no longer than ")


def test_of_several_handlers_one_is_named(laneway):
    """A wrong or missing name ends with exit code 2 and the names that there are."""
    found = laneway("get", "shop_app:app", "42", several=True)
    assert found.returncode == 2
    assert "--handler; shop_app:app has: pay, send" in found.stderr
    assert laneway("get", "shop_app:app", "42", "--handler", "send", several=True).returncode == 1
