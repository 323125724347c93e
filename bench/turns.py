"""Compares two trees by turns: the other tree, this tree, the other tree, and so on, and prints the medians.

``python bench/turns.py OTHER [--engine spark|direct] [w1 w2 …] [--repeat N]``. OTHER is a checkout of another commit in
which `make setup` has run. A machine that is shared has slow spells; taking turns spreads them over both trees. Which
tree goes first changes from turn to turn. Nothing is kept: the report is for the note that goes with a change.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import run as workloads

SHOWN = ("records_per_second", "ratio", "p50_ms", "p99_ms", "cpu_seconds", "rss_mb", "cold_start_seconds")
HERE = Path(__file__).resolve().parent.parent


def main() -> None:
    """Run the workloads that are named, or all, and print a row a workload and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="a checkout of another commit, set up")
    parser.add_argument("named", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--engine", choices=sorted(workloads.RUNS), action="append")
    parser.add_argument("--repeat", type=int, default=5, help="turns of each tree")
    asked = parser.parse_args()
    trees = {"other": asked.other.resolve(), "this": HERE}
    for engine in asked.engine or sorted(workloads.RUNS):
        for arguments in workloads.RUNS[engine]:
            if arguments == ["connector"] or (asked.named and arguments[0] not in asked.named):
                continue
            report(f"{engine} {' '.join(arguments)}", take_turns(trees, arguments, asked.repeat))


def take_turns(trees: dict[str, Path], arguments: list[str], repeat: int) -> dict[str, list[dict[str, Any]]]:
    """The figures of each tree, turn by turn."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in trees}
    for turn in range(repeat):
        for name in sorted(trees, reverse=turn % 2 == 1):
            command = [trees[name] / ".venv/bin/python", "-m", "laneway.cli", "bench", *arguments, "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=trees[name])
            if done.returncode:
                print(f"{name} tree failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
                continue
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    return found


def report(title: str, found: dict[str, list[dict[str, Any]]]) -> None:
    """Print the medians of both trees and their ratio."""
    print(f"{title} ({len(found['other'])} and {len(found['this'])} turns)")
    for name in SHOWN:
        values = {
            tree: [entry[name] for entry in entries if entry.get(name) is not None] for tree, entries in found.items()
        }
        if all(values.values()):
            other, this = median(values["other"]), median(values["this"])
            ratio = f"{this / other:6.1%}" if other else ""
            print(f"  {name:20} other {other:12.3f}  this {this:12.3f}  {ratio}  {values}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
