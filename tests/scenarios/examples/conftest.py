"""The examples, run as their README says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.topics import read_all

EXAMPLES = Path(__file__).parents[3] / "examples"


class Examples:
    """Commands in the folder of the examples, on the broker of the test run."""

    def __init__(self, cluster):
        self._cluster = cluster

    def produce(self, topic, count):
        """`python produce.py TOPIC COUNT`."""
        return self._call(sys.executable, "produce.py", topic, str(count))

    def run(self, target, *options, **variables):
        """`laneway run TARGET --once`."""
        laneway = str(Path(sys.executable).with_name("laneway"))
        return self._call(laneway, "run", target, "--once", *options, **variables)

    def read(self, topic):
        """Everything in a topic, by partition and offset."""
        return read_all(self._cluster.admin, {"bootstrap.servers": self._cluster.bootstrap}, topic)

    def _call(self, *command, **variables):
        # As a user has it: no variable of the test run decides where things go.
        environ = {name: value for name, value in os.environ.items() if name not in ("LANEWAY_CONFIG", "PYTHONPATH")}
        done = subprocess.run(
            [*command, "--brokers", self._cluster.bootstrap],
            cwd=EXAMPLES,
            env={**environ, "PYTHONDONTWRITEBYTECODE": "1", **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def examples(cluster):
    """The examples' folder."""
    return Examples(cluster)
