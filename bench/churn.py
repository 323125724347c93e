"""What each group protocol costs when members come and go: records handled twice, and stalls.

``python bench/churn.py`` runs four workers of the direct engine under steady traffic on a single broker, and a fifth
one that joins and is stopped or killed every three seconds, once with each protocol. It prints one line per protocol.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(1, str(Path(__file__).parents[1] / "tests"))  # the scene of the tests runs and watches the workers

from laneway.devkit import broker
from support.direct_scene import DirectScene

if TYPE_CHECKING:
    from laneway.devkit.history import Event

_QUICK = {
    "classic": {
        "LANEWAY__CLUSTERS__MAIN__CONSUMER__SESSION_TIMEOUT": "6s",
        "LANEWAY__CLUSTERS__MAIN__CONSUMER__HEARTBEAT_INTERVAL": "1s",
    },
    # The broker decides on the session with this protocol: 45 s by default.
    "consumer": {},
}


def churn(bootstrap: str, folder: Path, protocol: str, asked: argparse.Namespace) -> str:
    """Run one protocol; gives what it cost in one line."""
    scene = DirectScene(bootstrap, folder, protocol)
    scene.admin.create(scene.topic, 12)
    environ = {"LANEWAY__CLUSTERS__MAIN__CONSUMER__GROUP_PROTOCOL": protocol, **_QUICK[protocol]}
    settings = {"seconds": 0.005, "lanes": 4, **environ}
    try:
        for _ in range(4):
            scene.worker(**settings)
        scene.wait_for(lambda: all(scene.told_by(number) for number in range(4)), why="four members")
        traffic = scene.traffic(asked.rate, keys=500, burst=asked.rate // 20)
        ends, rounds = time.monotonic() + asked.seconds, 0
        while time.monotonic() < ends:
            fifth = scene.worker(**settings)
            time.sleep(3.0)
            if rounds % 2:
                fifth.kill()
            else:
                fifth.send(signal.SIGTERM)
            rounds += 1
        count = traffic.stop()
        scene.wait_until_idle(timeout=120)
        scene.dismiss_all()
        calls = scene.events()
    finally:
        scene.close()
    handled = Counter((event.partition, event.offset) for event in calls)
    repeats = sum(handled.values()) - len(handled)
    return (
        f"{protocol}: {count:,} records, {rounds} joins, {count - len(handled)} lost, {repeats} handled twice "
        f"({100 * repeats / count:.2f} %), longest stall of a partition {_stall(calls):.1f} s"
    )


def _stall(calls: list[Event]) -> float:
    """The longest time between two calls of a partition: under steady traffic it should be milliseconds."""
    starts: dict[int, list[float]] = {}
    for event in sorted(calls, key=lambda event: event.start):
        starts.setdefault(event.partition, []).append(event.start)
    return max(later - earlier for times in starts.values() for earlier, later in itertools.pairwise(times))


def main() -> None:
    """Run both protocols."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of churn with each protocol")
    parser.add_argument("--rate", type=int, default=400, help="records a second")
    parser.add_argument("--protocols", default="classic,consumer")
    asked = parser.parse_args()
    with broker.ephemeral() as running, tempfile.TemporaryDirectory() as folder:
        for protocol in asked.protocols.split(","):
            place = Path(folder, protocol)
            place.mkdir()
            print(churn(running.bootstrap, place, protocol, asked), flush=True)


if __name__ == "__main__":
    main()
