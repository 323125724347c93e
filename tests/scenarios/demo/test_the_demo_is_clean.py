"""`laneway demo` handles every order, in order, and proves it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LANEWAY = str(Path(sys.executable).with_name("laneway"))

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_the_demo_is_clean():
    """Every order is handled or parked exactly once, in the order of its key, many at once."""
    command = [LANEWAY, "demo", "--records", "6000", "--json"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    zeros = [result[name] for name in ("lost", "duplicates", "inversions", "overlaps")]
    assert (result["clean"], result["problems"], zeros) == (True, [], [0, 0, 0, 0])
    assert (result["records"], result["handled"] + result["parked"]) == (6000, 6000)
    assert result["receipts"] == result["handled"]
    assert min(result["parked"], result["retries"]) > 0
    assert result["times_faster"] > 2
    assert "Traceback" not in done.stderr
