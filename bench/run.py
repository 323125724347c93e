"""Measures every workload, one after the other, and keeps the figures with the machine's facts in bench/results.

``python bench/run.py [spark|direct] [w1 w2 …]``.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

SPARK = (
    ["w1"],
    ["w1", "--handler", "sync"],
    ["w2"],
    ["w2", "--handler", "async"],
    ["w2", "--handler", "columnar"],
    ["w2", "--engine", "spark-connector"],
    ["w3"],
    ["w4"],
    ["w6", "--lanes", "20"],
    ["w6", "--lanes", "200"],
    ["w6", "--lanes", "2000"],
)
DIRECT = (
    ["w1"],
    ["w1", "--handler", "sync"],
    ["w2"],
    ["w2", "--handler", "async"],
    ["w3"],
    ["w4"],
    ["w5"],
    ["w6", "--lanes", "20"],
    ["w6", "--lanes", "200"],
    ["w6", "--lanes", "2000"],
)
RUNS = {"spark": SPARK, "direct": tuple([*arguments, "--engine", "direct"] for arguments in DIRECT)}


def machine() -> dict[str, object]:
    """Facts without which a figure means nothing."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": java[0] if java else "unknown",
        **{name: version(name) for name in ("pyspark", "confluent-kafka", "pyarrow", "uvloop")},
    }


def main() -> None:
    """Run the engines and workloads that are named on the command line, or all."""
    named = set(sys.argv[1:])
    for engine in [engine for engine in RUNS if engine in named] or RUNS:
        measure(engine, named - set(RUNS))


def measure(engine: str, wanted: set[str]) -> None:
    """Measure an engine and keep its figures."""
    results = []
    for arguments in RUNS[engine]:
        if wanted and arguments[0] not in wanted:
            continue
        load_before = os.getloadavg()[0]
        print("laneway bench", *arguments, flush=True)
        command = [sys.executable, "-m", "laneway.cli", "bench", *arguments, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr.splitlines()[-1] if done.stderr else "failed", file=sys.stderr)
            continue
        figures = json.loads(done.stdout.splitlines()[-1])
        figures |= {"command": " ".join(["laneway bench", *arguments]), "load_before": round(load_before, 2)}
        results.append(figures)
        shown = ("records_per_second", "ratio", "ratio_measured", "p50_ms", "p99_ms", "cpu_seconds", "rss_mb")
        print("  ", {name: figures[name] for name in shown if figures.get(name) is not None}, flush=True)
    folder = Path(__file__).with_name("results")
    folder.mkdir(exist_ok=True)
    path = folder / f"{time.strftime('%Y-%m-%d')}-{engine}.json"
    path.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
