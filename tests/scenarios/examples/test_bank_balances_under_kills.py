"""examples/bank.py on a real broker."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from support.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_accounts_balance_after_kills(examples, tmp_path, cluster):
    """Three runs are killed in the middle of their work; the sum never changes, and each id has moved money once."""
    bank = tmp_path / "bank.db"
    examples.produce("movements", 2000)
    laneway = str(Path(sys.executable).with_name("laneway"))
    command = [laneway, "run", "bank:app", "--engine", "direct", "--brokers", cluster.bootstrap]
    quick = {
        "LANEWAY__CLUSTERS__MAIN__CONSUMER__SESSION_TIMEOUT": "6s",
        "LANEWAY__CLUSTERS__MAIN__CONSUMER__HEARTBEAT_INTERVAL": "1s",
    }
    environ = {**os.environ, **quick, "BANK": str(bank), "BANK_SLOW": "0.002", "PYTHONDONTWRITEBYTECODE": "1"}

    def ask(statement):
        with closing(sqlite3.connect(bank, timeout=30)) as database:
            return database.execute(statement).fetchone()[0]

    done = "select count(*) from laneway_dedup where is_done"
    for least in (200, 500, 800):
        run = subprocess.Popen(command, cwd=EXAMPLES, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: bank.exists() and ask(done) >= least, timeout=60)  # noqa: B023 - called at once
        finally:
            run.kill()
            run.wait()
        assert ask("select sum(cents) from account") == 50_000
    examples.run("bank:app", "--engine", "direct", BANK=str(bank), **quick)
    assert ask(done) == 1800
    assert ask("select sum(cents) from account") == 50_000
    expected = dict.fromkeys(range(50), 1000)
    for number in range(2000):
        if number % 10 != 9:
            expected[number % 50] -= 1
            expected[(number % 50 + 1) % 50] += 1
    with closing(sqlite3.connect(bank)) as database:
        found = dict(database.execute("select id, cents from account").fetchall())
    assert found == {f"account-{number}": cents for number, cents in expected.items()}
