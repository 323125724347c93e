"""Laneway itself, on the same topics and with the same notes as its peers. The variant names the engine."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

from job import Job, from_arguments
from notes import PARTITIONS, Notes, spread, writer

from laneway import App, Buffer, Topic
from laneway.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK = 0.1


def main() -> None:
    job = from_arguments()
    engine = engine_of(job)
    if job.is_live:
        threading.Thread(target=stop_when_complete, args=(engine, Notes(job.notes)), daemon=True).start()
    app_of(job).run(engine)


def engine_of(job: Job) -> Any:
    settings = load(overrides={"brokers": job.brokers})
    # Asked for one by one: Spark is loaded only by the run that needs it.
    if job.variant == "spark":
        from laneway import SparkEngine as Engine
    else:
        from laneway import DirectEngine as Engine
    return Engine(settings, once=not job.is_live)


def app_of(job: Job) -> App:
    """The app that `laneway bench` runs for this workload, with notes in place of its recorder."""
    app, topic, lanes = App(job.group), Topic(job.topic), max(1, job.at_once // PARTITIONS)
    buffer = Buffer(records=max(20_000, job.at_once * job.size))
    if job.size > 1:
        app.batch_handler(topic, size=job.size, lanes=lanes, buffer=buffer)(batch(job.notes, job.wait))
    elif job.wait or job.is_live:
        app.handler(topic, lanes=lanes, buffer=buffer)(single(job.notes, job.wait))
    else:
        app.handler(topic, lanes=lanes, buffer=buffer)(no_op(job.notes))
    return app


def no_op(path: str) -> Callable[[Any], None]:
    def handle(record: Any) -> None:
        start = time.monotonic()
        writer(path)(record.partition, record.offset, start)

    return handle


def single(path: str, wait: float) -> Callable[[Any], Any]:
    async def handle(record: Any) -> None:
        start = time.monotonic()
        if wait:
            await asyncio.sleep(wait)
        writer(path)(record.partition, record.offset, start)

    return handle


def batch(path: str, wait: float) -> Callable[[Any], Any]:
    async def handle(records: Any) -> None:
        start = time.monotonic()
        await asyncio.sleep(wait)
        spread(writer(path), [(record.partition, record.offset) for record in records], start)

    return handle


def stop_when_complete(engine: Any, notes: Notes) -> None:
    while not notes.is_complete:
        time.sleep(LOOK)
    engine.stop()


if __name__ == "__main__":
    main()
