"""Twenty minutes of faults: workers and brokers killed and frozen, connections cut, workers that come and go.

``python bench/soak.py`` starts a cluster of three nodes behind proxies, produces all the time, lets six workers handle
it, and makes something go wrong every 15 seconds. Then it heals everything, waits until nothing is left to do, and
checks what the workers and the brokers wrote down: nothing lost, nothing out of order, no commit ahead of its records
or after the partition was another's. The figures go to bench/results; the exit code is 1 when the bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "tests"))  # the proxy lives beside those who use it most

from run import machine
from soak.crew import Crew
from soak.faults import Chaos
from soak.judge import Bar, Findings, judge
from soak.load import Load
from soak.offsets import Clock, Watch
from soak.stage import Stage, set_up

_BEAT = 0.2
_DRAIN_LIMIT = 200.0  # seconds after the last fault within which nothing may be left, as Jepsen allows


class Soak:
    """One soak, from its first record to its figures."""

    def __init__(self, asked: argparse.Namespace, folder: Path, stage: Stage, stack: ExitStack) -> None:
        self._asked, self._folder, self._stage = asked, folder, stage
        environ = {
            "SOAK_BROKERS": stage.proxied,
            "SOAK_TOPIC": stage.topic,
            "SOAK_GROUP": stage.group,
            "SOAK_FAILING": "yes" if asked.failing else "",
            "SOAK_SLOW": "yes" if asked.slow else "",
        }
        self._crew = Crew(asked.app, environ, folder / "workers")
        stack.callback(self._crew.close)
        self._chaos = Chaos(stage, self._crew, asked.seed, folder / "faults.jsonl")
        stack.callback(self._chaos.close)
        self._load = Load(stage.options, stage.topic, rate=asked.rate, keys=asked.keys, seed=asked.seed)
        stack.callback(self._load.stop, 10)
        self._watch = Watch(stage, asked.partitions)
        stack.callback(self._watch.close)
        self._clock = Clock()
        self._began = self._told = time.monotonic()

    def run(self) -> dict[str, Any]:
        """Let it happen, and give the figures."""
        for _ in range(self._asked.workers):
            self._crew.start()
        self._load.start()
        # Half an interval before the first, so that the last is over when the time is.
        strike = self._began + self._asked.fault_every / 2
        while (now := time.monotonic()) < self._began + self._asked.seconds:
            if now >= strike and (told := self._chaos.strike()):
                strike += self._asked.fault_every
                self._say(told)
            self._crew.replace_lost()
            self._progress()
            time.sleep(_BEAT)
        return self._finish()

    def _finish(self) -> dict[str, Any]:
        self._say("healing")
        self._load.stop()
        self._chaos.heal()
        healed = time.monotonic()
        # A look that began before everything was healed says nothing.
        while (self._watch.lag != 0 or self._watch.looked < healed) and time.monotonic() < healed + _DRAIN_LIMIT:
            self._crew.replace_lost()
            self._progress()
            time.sleep(_BEAT)
        drained = time.monotonic() - healed
        self._say(f"lag {self._watch.lag} after {drained:.1f} s; workers leave")
        self._crew.dismiss_all()
        self._clock.look()
        self._say("checking")
        figures = judge(
            Findings(self._stage, self._load, self._crew, self._chaos, self._clock, self._folder / "workers")
        )
        stall, partition = self._watch.longest
        return {
            **figures,
            "drain_seconds": round(drained, 1),
            "longest_stall_seconds": round(stall, 1),
            "longest_stall_partition": partition,
        }

    def _progress(self) -> None:
        if time.monotonic() < self._told + 10:
            return
        self._told = time.monotonic()
        self._clock.look()
        lag = "?" if self._watch.lag is None else self._watch.lag
        workers, surprises = len(self._crew.present), len(self._crew.surprises)
        self._say(
            f"{self._load.total:,} acknowledged of {self._load.produced:,}, lag {lag}, {workers} workers, "
            f"{self._chaos.total} faults{f', {surprises} surprises' if surprises else ''}"
        )

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {text}", file=sys.stderr, flush=True)


def arguments() -> argparse.ArgumentParser:
    """What can be asked for."""
    here = Path(__file__)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--seed", type=int, default=None, help="of faults and keys; one of the clock's by default")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--keys", type=int, default=2000)
    parser.add_argument("--rate", type=int, default=450, help="records per second")
    parser.add_argument("--fault-every", type=float, default=15, help="seconds")
    parser.add_argument("--failing", action=argparse.BooleanOptionalAction, default=True, help="let some records fail")
    parser.add_argument(
        "--slow", action=argparse.BooleanOptionalAction, default=True, help="let some records take long"
    )
    parser.add_argument("--duplicates", type=float, default=5, help="percent that repeats have to stay below")
    parser.add_argument("--folder", type=Path, help="of all histories; by default one that goes when the bar is met")
    parser.add_argument("--app", type=Path, default=here.with_name("soak_app.py"), help="what a worker runs")
    results = here.with_name("results") / f"{time.strftime('%Y-%m-%d')}-soak.json"
    parser.add_argument("--results", type=Path, default=results)
    return parser


def main() -> None:
    """Run one soak."""
    asked = arguments().parse_args()
    asked.seed = int(time.time()) if asked.seed is None else asked.seed
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="laneway-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {asked.seed}, folder {folder}", file=sys.stderr)
    # As an exception, so that nothing is left running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    load_before = round(os.getloadavg()[0], 2)
    with set_up(asked.partitions) as stage, ExitStack() as stack:
        figures = Soak(asked, folder, stage, stack).run()
    names = ("seconds", "seed", "partitions", "keys", "rate", "fault_every", "failing", "slow")
    missed = Bar(asked.seconds, asked.fault_every, asked.duplicates).missed(figures)
    summary = {
        **{name: getattr(asked, name) for name in names},
        **figures,
        "load_before": load_before,
        "missed": missed,
    }
    asked.results.parent.mkdir(exist_ok=True)
    asked.results.write_text(json.dumps({"machine": machine(), "results": [summary]}, indent=1) + "\n")
    print(json.dumps(summary, indent=1))
    if not missed and asked.folder is None:
        shutil.rmtree(folder)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
