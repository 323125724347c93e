"""The opponent: the stock Kafka connector with `mapInArrow`, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway._home import home_directory
from laneway._kafka import Admin
from laneway.devkit.bench._produce import fill
from laneway.devkit.bench._workloads import KEYS, PARTITIONS, Workload
from laneway.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["measure_connector"]

# The newest pair of Spark and connector that resolves; later connectors lack a dependency in the registry.
_PACKAGES = ("pyspark==4.0.0", "pyarrow>=18", "pandas>=2,<3", "setuptools")


def measure_connector(workload: Workload, brokers: str, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure W2 with the connector; other workloads have no counterpart there.

    Raises:
        EngineError: when its environment cannot be made or its job fails.
    """
    if workload.name != "w2":
        raise EngineError("the stock connector has no lanes and no batches: only w2 can be compared")
    python = _environment(say)
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    Admin({"bootstrap.servers": brokers}).create(topic, PARTITIONS)
    say(f"producing {workload.records:,} records")
    fill(brokers, topic, workload.records, keys=KEYS).wait()
    say("running the stock connector with mapInArrow (its jar is fetched the first time)")
    script = Path(__file__).with_name("_connector_job.py")
    environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(python), str(script), brokers, topic],
        capture_output=True,
        text=True,
        env=environment,
        timeout=900,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-5:])
        raise EngineError(f"the connector's job failed: {tail}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"workload": workload.name, "engine": "spark-connector", "records": workload.records, **answer}


def _environment(say: Callable[[str], None]) -> Path:
    folder = home_directory() / "connector" / "env"
    python = folder / "bin" / "python"
    marker = folder / "complete"
    if not marker.exists():
        say("making an environment for the stock connector (once)")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--compile", *_PACKAGES],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise EngineError(f"cannot install the connector's environment: {done.stderr.strip().splitlines()[-1]}")
        marker.touch()
    return python
