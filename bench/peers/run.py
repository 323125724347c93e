"""Runs Laneway's competitors, and Laneway, one after the other on the same topics of one broker.

``python bench/peers/run.py [--workloads w1,w4] [--peers quix,aiokafka] [--laneway spark] [--repeat 3] [--resume]``
keeps the figures in bench/results after each run and draws the chart at the end, also when it is interrupted. Each run
is a process of its own with a new consumer group; before it the machine must be quiet. README.md describes how
each peer is configured; ``python bench/table.py`` writes table and chart into docs/performance.md.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalogue import LANEWAY, PEERS, WORKLOADS, Peer, Plan, Workload
from environment import HERE, HOME, java_command, python, versions
from job import Job
from load import wait_until_quiet
from sheet import OtherFactsError, Sheet, machine
from topics import Topics
from trial import Trial

from laneway.devkit.broker import FULL_SPEED, ephemeral

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topics import Contents

    from laneway.devkit.broker import Running

RESULTS, TRIED = HERE.parent / "results", HOME / "tried"
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
    parser.add_argument("--records", type=int, help=f"at most so many, for a try: its figures go to {TRIED.name}")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; the chart shows their medians")
    parser.add_argument("--resume", action="store_true", help="go on with the newest results; what is there stays")
    parser.add_argument("--limit", type=float, default=110, help="seconds a run may take, its start included")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait at most for a quiet machine")
    parser.add_argument("--results", type=Path, help="folder for figures and chart; default: bench/results")
    options = parser.parse_args()
    # Figures of a try are no figures: they do not get beside the others by themselves.
    options.results = options.results or (TRIED if options.records else RESULTS)
    return options


def chosen(names: str, known: dict[str, Any]) -> list[Any]:
    wanted = [] if names == "none" else names.split(",")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in wanted]


class Contest:
    """All runs on one broker."""

    def __init__(self, broker: Running, options: argparse.Namespace, commands: dict[str, list[str] | str]) -> None:
        self._broker, self._options, self._commands = broker, options, commands
        self._topics = Topics(broker.bootstrap)
        self._numbers = itertools.count(1)

    def told(self, workload: Workload, peer: Peer) -> dict[str, Any]:
        """One run, whatever becomes of it: one that cannot be made or judged is a failed one, not the end of all."""
        about = {"measured": time.strftime("%Y-%m-%d %H:%M"), "limit_seconds": self._options.limit}
        try:
            return {**self.run(workload, peer), **about}
        except Exception as error:
            if not self._broker.pids:
                raise RuntimeError("the broker has ended") from error
            named = {"workload": workload.name, "peer": peer.name, "title": peer.title}
            return {**named, "state": "failed", "why": f"{type(error).__name__}: {error}", **about}

    def run(self, workload: Workload, peer: Peer) -> dict[str, Any]:
        """One run, or the reason why there is none."""
        plan = peer.plans.get(workload.name, Plan())
        named = {"workload": workload.name, "peer": peer.name, "title": peer.title}
        if isinstance(plan, str):
            return {**named, "state": "left out", "why": plan}
        command = self._commands[peer.name]
        if isinstance(command, str):
            return {**named, "state": "failed", "why": command}
        records = min(plan.records or workload.records, self._options.records or workload.records)
        workload = replace(workload, records=records)
        at_once = plan.at_once or workload.at_once
        # Filled before the wait, so that the broker's work on the producer's account is over.
        filled = None if workload.rate else self._topics.filled(records, is_skewed=workload.is_skewed)
        before = wait_until_quiet(self._broker.pids, self._options.patience)
        asked = {"records": records, "at_once": at_once, "remark": plan.remark}
        with tempfile.TemporaryDirectory(prefix="laneway-peers-") as folder:
            trial = Trial(command, Path(folder), self._options.limit, peer.is_laneway, self._broker.pids)
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


def commands_of(peers: list[Peer]) -> dict[str, list[str] | str]:
    """Fetch and compile what is missing, before anything is timed; of a peer that cannot be had, give the reason."""
    commands: dict[str, list[str] | str] = {}
    for peer in peers:
        try:
            commands[peer.name] = command_of(peer)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            commands[peer.name] = f"cannot be run: {error}"
    return commands


def runs_of(options: argparse.Namespace, sheet: Sheet) -> Iterator[dict[str, Any]]:
    """Run what is asked for and, when it is resumed, not on the sheet yet."""
    workloads = chosen(options.workloads, WORKLOADS)
    peers = [*chosen(options.laneway, LANEWAY), *chosen(options.peers, PEERS)]
    commands = commands_of(peers)
    with ephemeral(java_options=FULL_SPEED) as broker:
        contest = Contest(broker, options, commands)
        for workload, number, peer in itertools.product(workloads, range(1, options.repeat + 1), peers):
            if options.resume and sheet.has(workload.name, peer.name, number):
                continue
            figures = contest.told(workload, peer)
            shown = {name: figures[name] for name in SHOWN if figures.get(name) is not None}
            of = f"{number}/{options.repeat}"
            print(workload.name, peer.name, of, figures["state"], figures.get("why") or "", shown, flush=True)
            yield figures


def main() -> None:
    """Run what is named on the command line, or all."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that processes are ended on the way out
    options = arguments()
    try:
        sheet = Sheet(options.results, {"machine": machine(), "versions": versions()}, is_resumed=options.resume)
    except OtherFactsError as error:
        sys.exit(str(error))
    try:
        for figures in runs_of(options, sheet):
            sheet.add(figures)
    finally:
        if sheet.path.exists():
            print(sheet.path)
            subprocess.run([python(), str(HERE / "chart.py"), str(sheet.path)], check=True)


if __name__ == "__main__":
    main()
