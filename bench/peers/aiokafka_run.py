"""A bare aiokafka loop, as one writes it manually: one record or batch after the other, on uvloop."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import uvloop
from aiokafka import AIOKafkaConsumer
from job import Job, from_arguments
from notes import Notes, spread, writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WAIT_MS = 500


async def main() -> None:
    job = from_arguments()
    consumer = AIOKafkaConsumer(
        job.topic, bootstrap_servers=job.brokers, group_id=job.group, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        if job.size > 1:
            await batches(consumer, job, batch_handler(job))
        else:
            await singles(consumer, job, handler(job))
    finally:
        await consumer.stop()


def handler(job: Job) -> Callable[[Any], Awaitable[None]]:
    note, wait = writer(job.notes), job.wait

    async def handle(record: Any) -> None:
        start = time.monotonic()
        if wait:
            await asyncio.sleep(wait)
        note(record.partition, record.offset, start)

    return handle


def batch_handler(job: Job) -> Callable[[list[Any]], Awaitable[None]]:
    note, wait = writer(job.notes), job.wait

    async def handle(records: list[Any]) -> None:
        start = time.monotonic()
        await asyncio.sleep(wait)
        spread(note, [(record.partition, record.offset) for record in records], start)

    return handle


async def singles(consumer: Any, job: Job, handle: Callable[[Any], Awaitable[None]]) -> None:
    notes, seen = Notes(job.notes), 0
    while seen < job.records or not notes.is_complete:
        # getmany gives what is there at once, so it serves latency as well as throughput.
        for records in (await consumer.getmany(timeout_ms=WAIT_MS)).values():
            for record in records:
                await handle(record)
            seen += len(records)


async def batches(consumer: Any, job: Job, handle: Callable[[list[Any]], Awaitable[None]]) -> None:
    notes, seen = Notes(job.notes), 0
    while seen < job.records or not notes.is_complete:
        found = await consumer.getmany(timeout_ms=WAIT_MS, max_records=job.size)
        batch = [record for records in found.values() for record in records]
        if batch:
            await handle(batch)
            seen += len(batch)


if __name__ == "__main__":
    uvloop.run(main())
