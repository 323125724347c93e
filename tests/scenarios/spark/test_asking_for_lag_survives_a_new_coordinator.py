"""The group's coordinator is not ready when the view asks for the lag."""

from __future__ import annotations

import subprocess
import sys

import pytest

from laneway.devkit import broker

pytestmark = [pytest.mark.broker]

SCRIPT = """\
import sys
from laneway.errors import AdminError
from laneway._kafka import Admin

admin = Admin({"bootstrap.servers": sys.argv[1]})
admin.create("orders", 3)
for number in range(6):
    try:
        print(admin.lag(f"group-{number}", "orders"))
    except AdminError as error:
        print(error)
"""


def test_a_broker_that_has_never_seen_a_group() -> None:
    """Asking for lag while the coordinator loads ended the driver with SIGSEGV, in librdkafka's admin request."""
    with broker.ephemeral() as running:
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, running.bootstrap], capture_output=True, text=True, timeout=60, check=False
        )
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 6
