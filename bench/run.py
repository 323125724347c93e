"""Measures every workload, one after the other, and keeps the figures with the machine's facts in bench/results.

``python bench/run.py [spark|direct] [w1 w2 …] [--repeat N]``. A run of some workloads replaces their figures and keeps
the others, each with the time when it was measured; ``python bench/table.py`` then writes them into the pages.

Of N runs the best is kept, with the figures of all: a machine that is shared has slow spells, see *tempo* in each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import figures
from machine import machine, tempo

SPARK = (
    ["w1"],
    ["w1", "--handler", "sync"],
    ["w2"],
    ["w2", "--handler", "async"],
    ["w2", "--handler", "columnar"],
    ["connector"],
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
    workloads = {arguments[0] for runs in RUNS.values() for arguments in runs}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("named", nargs="*", metavar="NAME", help=f"{', '.join([*RUNS, *sorted(workloads)])}")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; the best is kept")
    asked = parser.parse_args()
    named = set(asked.named)
    unknown = sorted(named - workloads - set(RUNS))
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join([*RUNS, *sorted(workloads)])}")
    failed = [
        command
        for engine in [engine for engine in RUNS if engine in named] or RUNS
        for command in measure(engine, named - set(RUNS), repeat=asked.repeat)
    ]
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def measure(engine: str, wanted: set[str], folder: Path = figures.RESULTS, repeat: int = 1) -> list[str]:
    """Measure an engine, keep its figures after each workload, and return what failed."""
    path = folder / f"{time.strftime('%Y-%m-%d')}-{engine}.json"
    # What is not measured now is carried on from the newest file, with the day it has.
    kept = figures.read(figures.newest(engine, folder))
    facts, failed = machine(), []
    order = [words_of(arguments) for arguments in RUNS[engine]]
    for arguments, command in zip(RUNS[engine], order, strict=True):
        if wanted and arguments[0] not in wanted:
            continue
        print(command, flush=True)
        runs = [run(arguments) for _ in range(repeat)]
        if None in runs:  # also one of several: what fails now and then is not measured
            failed.append(command)
            continue
        entry = best_of([entry for entry in runs if entry is not None])
        kept = figures.merged(kept, [{**entry, "command": command}], facts, order)
        figures.write(path, kept)
        shown = ("records_per_second", "ratio", "ratio_measured", "p50_ms", "p99_ms", "cpu_seconds", "rss_mb")
        print("  ", {name: entry[name] for name in shown if entry.get(name) is not None}, flush=True)
    print(path)
    return failed


def words_of(arguments: list[str]) -> str:
    """What measures this, as a reader types it."""
    return "python bench/connector.py" if arguments == ["connector"] else " ".join(["laneway bench", *arguments])


def best_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The fastest run, or at a given rate the one with the lowest latency, with the figures of all when there are more.

    What must not happen at all counts from all of them.
    """
    if len(runs) == 1:
        return runs[0]
    best = min(runs, key=lambda entry: entry["p99_ms"] if entry["workload"] == "w4" else -entry["records_per_second"])
    shown = ("records_per_second", "p50_ms", "p99_ms", "cpu_seconds", "rss_mb", "tempo")
    bad = ("lost", "duplicates", "inversions", "overlaps")
    worst = {name: max(entry.get(name) or 0 for entry in runs) for name in bad}
    return best | worst | {"runs": [{name: entry.get(name) for name in shown} for entry in runs]}


def run(arguments: list[str]) -> dict[str, Any] | None:
    """One run of a workload: its figures, the load before it and when it was; none if it failed."""
    about = {"load_before": round(os.getloadavg()[0], 2), "measured": time.strftime("%Y-%m-%d %H:%M")}
    before = tempo()
    command = [sys.executable, "-m", "laneway.cli", "bench", *arguments, "--json"]
    if arguments == ["connector"]:
        command = [sys.executable, str(Path(__file__).with_name("connector.py"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr.splitlines()[-1] if done.stderr else "failed", file=sys.stderr)
        return None
    return {**json.loads(done.stdout.splitlines()[-1]), **about, "tempo": [before, tempo()]}


if __name__ == "__main__":
    main()
