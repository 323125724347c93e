"""A blocked handler with a million records waiting: how much memory the process tree takes.

``python bench/memory.py [RECORDS]`` starts a broker, fills a topic, runs an app whose handler waits for a file, prints
the growth of every worker from its first sample to its highest, and the bound that DESIGN.md gives.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from laneway._kafka import Admin
from laneway.devkit.bench._workloads import fill
from laneway.devkit.broker import FULL_SPEED, ephemeral

APP = """
import os, time
from laneway import App, Topic

app = App("blocked")

@app.handler(Topic("waiting"), lanes=20)
def wait(record):
    # Fast at first, so that the planner asks for large batches, then blocked in the middle of one.
    while record.offset > 6_000 and not os.path.exists(os.environ["RELEASE"]):
        time.sleep(0.05)
"""
BOUND_MB = 120 + 2 * 64 * 1.048576 + 40  # base, buffer and prefetch, one fetch and the interpreter's slack


def workers(root: psutil.Process) -> dict[int, float]:
    """RSS in MB of the Python processes below the driver."""
    found = {}
    for child in root.children(recursive=True):
        try:
            if "laneway._engines.spark.daemon" in child.cmdline():  # as an argument of its own: not the JVM
                found[child.pid] = child.memory_info().rss / 1e6
        except psutil.Error:
            continue
    return found


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with ephemeral(java_options=FULL_SPEED) as kafka, tempfile.TemporaryDirectory() as folder:
        Admin({"bootstrap.servers": kafka.bootstrap}).create("waiting", 15)
        fill(kafka.bootstrap, "waiting", records, keys=10_000).wait()
        Path(folder, "blocked.py").write_text(APP)
        release = Path(folder, "release")
        run = subprocess.Popen(
            [sys.executable, "-m", "laneway.cli", "run", "blocked:app", "--brokers", kafka.bootstrap, "--quiet"],
            cwd=folder,
            env={**os.environ, "RELEASE": str(release)},
        )
        root, highest, series = psutil.Process(run.pid), {}, []
        for _ in range(60):
            time.sleep(0.5)
            now = workers(root)
            series.append(round(sum(now.values())))
            for pid, size in now.items():
                highest[pid] = max(size, highest.get(pid, 0.0))
        release.touch()
        run.terminate()
        run.wait(120)
        print(
            json.dumps(
                {
                    "records": records,
                    "highest_mb_each": sorted((round(size) for size in highest.values()), reverse=True),
                    "bound_mb_each": round(BOUND_MB),
                    "total_mb_every_half_second": series,
                    "is_within": max(highest.values(), default=0) <= BOUND_MB,
                }
            )
        )


if __name__ == "__main__":
    main()
