"""The worker of ``bench/soak.py``: an app on the direct engine that writes down all that it does.

SOAK_BROKERS, SOAK_TOPIC, SOAK_GROUP and SOAK_HISTORY say where; with SOAK_FAILING some records fail at their first
call, and a few are rejected; with SOAK_SLOW some take long, so that every fault finds calls under way.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "tests"))  # the recorder of ownerships lives there

from laneway import App, DirectEngine, Record, Reject, Retry, Topic
from laneway.devkit.history import Recorder
from laneway.events import OffsetsCommitted, PartitionsAssigned, PartitionsRevoked, StateChanged
from laneway.settings import load
from support.ownership import OwnershipRecorder

history = Path(os.environ["SOAK_HISTORY"])
is_failing, is_slow = bool(os.environ.get("SOAK_FAILING")), bool(os.environ.get("SOAK_SLOW"))
done, failed, ownership = Recorder(str(history)), Recorder(str(history / "failed")), OwnershipRecorder(str(history))
app = App(os.environ["SOAK_GROUP"])


@app.handler(Topic(os.environ["SOAK_TOPIC"]), lanes=8, retry=Retry(attempts=3, backoff="20ms"))
async def handle(record: Record[Any]) -> None:
    """Take up to 5 ms, or half a second if it is a slow record, and fail if it is one that does."""
    began = time.monotonic()
    most = 0.5 if is_slow and record.offset % 50 == 1 else 0.005
    await asyncio.sleep(random.random() * most)  # noqa: S311 - spread, not secrecy
    if is_failing and record.offset % 1000 == 13:
        failed.write(record, began)
        raise Reject("planted")
    if is_failing and record.offset % 200 == 7 and record.attempt == 1:
        failed.write(record, began)
        raise ConnectionError("planted")
    done.write(record, began)


@app.on(PartitionsAssigned)
def assigned(event: PartitionsAssigned) -> None:
    ownership.assigned(event.topic, event.partitions)


@app.on(PartitionsRevoked)
def revoked(event: PartitionsRevoked) -> None:
    ownership.revoked(event.topic, event.partitions, is_lost=event.is_lost)


@app.on(OffsetsCommitted)
def committed(event: OffsetsCommitted) -> None:
    ownership.committed(event.topic, event.offsets)


def end_with_the_soak() -> None:
    """Wait for the end of the input, which ends with the soak; then exit."""
    sys.stdin.read()
    os._exit(70)


def main() -> None:
    (history / "failed").mkdir(exist_ok=True)
    faulthandler.register(signal.SIGUSR1)
    threading.Thread(target=end_with_the_soak, daemon=True).start()
    settings = load(
        overrides={
            "brokers": os.environ["SOAK_BROKERS"],
            # Short, so that a worker frozen for ten seconds is thrown out, and one frozen for three is not.
            "clusters.main.consumer.session_timeout": "6s",
            "clusters.main.consumer.heartbeat_interval": "1s",
            "clusters.main.consumer.max_poll_interval": "30s",
        }
    )
    app.on(StateChanged)(lambda event: print(f"{time.monotonic():.3f}", event))
    report: Any = app.run(DirectEngine(settings))
    print(report)
    sys.exit(3 if report.was_forced else 0)


if __name__ == "__main__":
    main()
