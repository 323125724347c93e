"""Runs Laneway's competitors, and Laneway, one after the other on the same topics of one broker.

``python bench/peers/run.py [--workloads w1,w4] [--peers quix,aiokafka] [--laneway spark] [--records 5000]`` keeps
the figures in bench/results and draws the chart. Each run is a process of its own with a new consumer group; before it
the machine must be quiet. README.md tells how each peer is set up.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalogue import LANEWAY, PEERS, WORKLOADS, Peer, Plan, Workload
from environment import HERE, java_command, python, versions
from job import Job
from load import wait_until_quiet
from topics import Topics
from trial import Trial

from laneway.broker import ephemeral

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topics import Contents

    from laneway.broker import Running

RESULTS = HERE.parent / "results"
SHOWN = (
    "records_per_second",
    "p50_ms",
    "p99_ms",
    "cpu_seconds",
    "rss_mb",
    "lost",
    "duplicates",
    "inversions",
    "overlaps",
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="default: all")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: all; 'none' for Laneway alone")
    parser.add_argument("--laneway", default="direct,spark", help="engines to run Laneway on; 'none' for none")
    parser.add_argument("--records", type=int, help="at most so many, for a try")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; the chart shows their medians")
    parser.add_argument("--limit", type=float, default=110, help="seconds a run may take, its start included")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait at most for a quiet machine")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for figures and chart")
    return parser.parse_args()


def chosen(names: str, known: dict[str, Any]) -> list[Any]:
    wanted = [] if names == "none" else names.split(",")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in wanted]


class Contest:
    """All runs on one broker."""

    def __init__(self, broker: Running, options: argparse.Namespace) -> None:
        self._broker, self._options = broker, options
        self._topics = Topics(broker.bootstrap)
        self._numbers = itertools.count(1)

    def run(self, workload: Workload, peer: Peer) -> dict[str, Any]:
        """One run, or the reason why there is none."""
        plan = peer.plans.get(workload.name, Plan())
        named = {"workload": workload.name, "peer": peer.name, "title": peer.title}
        if isinstance(plan, str):
            return {**named, "state": "left out", "why": plan}
        records = min(plan.records or workload.records, self._options.records or workload.records)
        workload = replace(workload, records=records)
        at_once = plan.at_once or workload.at_once
        # Filled before the wait, so that the broker's work on the producer's account is over.
        filled = None if workload.rate else self._topics.filled(records, is_skewed=workload.is_skewed)
        before = wait_until_quiet(self._broker.pids, self._options.patience)
        asked = {"records": records, "at_once": at_once, "remark": plan.remark}
        with tempfile.TemporaryDirectory(prefix="laneway-peers-") as folder:
            trial = Trial(command_of(peer), Path(folder), self._options.limit, peer.is_laneway, self._broker.pids)
            job = self._job(workload, peer, filled[0] if filled else self._topics.new(), folder, at_once)
            if filled:
                figures = {"ideal_per_second": ideal(workload, filled[1]), **trial.on_filled(job, filled[1])}
            else:
                figures = trial.on_live(
                    replace(job, records=trial.with_warm_up(records)), self._topics, workload.rate or 1
                )
        return {**named, **asked, **rounded(figures), "foreign_cores_before": round(before, 2)}

    def _job(self, workload: Workload, peer: Peer, topic: str, folder: str, at_once: int) -> Job:
        return Job(
            brokers=self._broker.bootstrap,
            topic=topic,
            group=f"{peer.name}-{next(self._numbers)}",
            notes=f"{folder}/notes",
            records=workload.records,
            at_once=at_once,
            wait=workload.wait,
            size=workload.size,
            is_live=bool(workload.rate),
            variant=peer.variant,
        )


def ideal(workload: Workload, contents: Contents) -> float | None:
    """Records per second if all calls that may run did, each for its wait only; the busiest key sets a bound too."""
    if not workload.wait:
        return None
    bound = workload.at_once * workload.size / workload.wait
    return bound if workload.size > 1 else min(bound, contents.records / contents.hottest / workload.wait)


def command_of(peer: Peer) -> list[str]:
    if peer.program == "java":
        return java_command()
    return [sys.executable if peer.is_laneway else python(), str(HERE / peer.program)]


def rounded(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}


def figures_of(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    workloads = chosen(options.workloads, WORKLOADS)
    peers = [*chosen(options.laneway, LANEWAY), *chosen(options.peers, PEERS)]
    for peer in peers:
        command_of(peer)  # fetches and compiles what is missing, before anything is timed
    with ephemeral() as broker:
        yield from rounds(Contest(broker, options), workloads, peers, options.repeat)


def rounds(contest: Contest, workloads: list[Workload], peers: list[Peer], repeat: int) -> Iterator[dict[str, Any]]:
    for workload, _, peer in itertools.product(workloads, range(repeat), peers):
        figures = contest.run(workload, peer)
        shown = {name: figures[name] for name in SHOWN if figures.get(name) is not None}
        print(workload.name, peer.name, figures["state"], figures.get("why") or "", shown, flush=True)
        yield figures


def main() -> None:
    """Run what is named on the command line, or all."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that processes are ended on the way out
    options = arguments()
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / f"{time.strftime('%Y-%m-%d')}-peers.json"
    facts = {"machine": machine(), "versions": versions(), "limit_seconds": options.limit, "results": []}
    for figures in figures_of(options):
        facts["results"].append(figures)
        # Written after each run: half an hour of figures is not lost with the last one.
        path.write_text(json.dumps(facts, indent=1) + "\n")
    print(path)
    subprocess.run([python(), str(HERE / "chart.py"), str(path)], check=True)


def machine() -> dict[str, Any]:
    """The facts that bench/run.py keeps; it has the name of this module, so its folder goes first."""
    sys.path.insert(0, str(HERE.parent))
    import run

    return run.machine()


if __name__ == "__main__":
    main()
