"""Measures every workload, one after the other, and keeps the figures with the machine's facts in bench/results.

``python bench/run.py [spark|direct] [w1 w2 …]``. A run of some workloads replaces their figures and keeps the others,
each with the time when it was measured; ``python bench/table.py`` then puts them all into the README.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import figures
from machine import machine

if TYPE_CHECKING:
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


def main() -> None:
    """Run the engines and workloads that are named on the command line, or all."""
    named = set(sys.argv[1:])
    workloads = {arguments[0] for runs in RUNS.values() for arguments in runs}
    unknown = sorted(named - workloads - set(RUNS))
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join([*RUNS, *sorted(workloads)])}")
    failed = [
        command
        for engine in [engine for engine in RUNS if engine in named] or RUNS
        for command in measure(engine, named - set(RUNS))
    ]
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def measure(engine: str, wanted: set[str], folder: Path = figures.RESULTS) -> list[str]:
    """Measure an engine, keep its figures after each workload, and return what failed."""
    path = folder / f"{time.strftime('%Y-%m-%d')}-{engine}.json"
    # What is not measured now is carried on from the newest file, with the day it has.
    kept = figures.read(figures.newest(engine, folder))
    facts, failed = machine(), []
    order = [" ".join(["laneway bench", *arguments]) for arguments in RUNS[engine]]
    for arguments, command in zip(RUNS[engine], order, strict=True):
        if wanted and arguments[0] not in wanted:
            continue
        print(command, flush=True)
        entry = run(arguments)
        if entry is None:
            failed.append(command)
            continue
        kept = figures.merged(kept, [{**entry, "command": command}], facts, order)
        figures.write(path, kept)
        shown = ("records_per_second", "ratio", "ratio_measured", "p50_ms", "p99_ms", "cpu_seconds", "rss_mb")
        print("  ", {name: entry[name] for name in shown if entry.get(name) is not None}, flush=True)
    print(path)
    return failed


def run(arguments: list[str]) -> dict[str, Any] | None:
    """One run of `laneway bench`: its figures, the load before it and when it was; none if it failed."""
    about = {"load_before": round(os.getloadavg()[0], 2), "measured": time.strftime("%Y-%m-%d %H:%M")}
    command = [sys.executable, "-m", "laneway.cli", "bench", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr.splitlines()[-1] if done.stderr else "failed", file=sys.stderr)
        return None
    return {**json.loads(done.stdout.splitlines()[-1]), **about}


if __name__ == "__main__":
    main()
