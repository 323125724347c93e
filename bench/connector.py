"""Measures W2 with Spark's own Kafka connector and `mapInArrow`, in an environment of its own.

``python bench/connector.py`` prints one JSON object; `bench/run.py` runs it with the workloads of Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from laneway._home import home_directory
from laneway._kafka import Admin
from laneway.devkit.bench import WORKLOADS
from laneway.devkit.bench._workloads import KEYS, PARTITIONS, fill
from laneway.devkit.broker import FULL_SPEED, ephemeral

# The newest pair of Spark and connector that resolves; later connectors lack a dependency in the registry.
_PACKAGES = ("pyspark==4.0.0", "pyarrow>=18", "pandas>=2,<3", "setuptools")


def main() -> None:
    """Start a Kafka, fill a topic, run the job, and print its figures."""
    python, workload = _environment(), WORKLOADS["w2"]
    _say("starting an ephemeral Kafka")
    with ephemeral(java_options=FULL_SPEED) as kafka:
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        Admin({"bootstrap.servers": kafka.bootstrap}).create(topic, PARTITIONS)
        _say(f"producing {workload.records:,} records")
        fill(kafka.bootstrap, topic, workload.records, keys=KEYS).wait()
        _say("running the stock connector with mapInArrow (its jar is fetched the first time)")
        environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(
            [str(python), str(Path(__file__).with_name("connector_job.py")), kafka.bootstrap, topic],
            capture_output=True,
            text=True,
            env=environment,
            timeout=900,
            check=False,
        )
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-5:])
        sys.exit(f"the connector's job failed: {tail}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps({"workload": "w2", "engine": "spark-connector", "records": workload.records, **answer}))


def _environment() -> Path:
    folder = home_directory() / "connector" / "env"
    python = folder / "bin" / "python"
    marker = folder / "complete"
    if not marker.exists():
        _say("making an environment for the stock connector (once)")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--compile", *_PACKAGES],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"cannot install the connector's environment: {done.stderr.strip().splitlines()[-1]}")
        marker.touch()
    return python


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
