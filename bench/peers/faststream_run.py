"""FastStream on aiokafka or on confluent-kafka.

Variants: ``aiokafka`` and ``confluent`` call handlers of all records at once (acknowledged first, as its documentation
asks for that), ``aiokafka-partition`` one record of each partition at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import uvloop
from faststream import AckPolicy
from job import Job, from_arguments
from notes import Notes, spread, writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LOOK = 0.1


async def main() -> None:
    job = from_arguments()
    broker = broker_of(job)
    broker.subscriber(job.topic, **options(job))(handler(job))
    notes = Notes(job.notes)
    await broker.start()
    try:
        while not notes.is_complete:  # noqa: ASYNC110 - the file is written by handlers only
            await asyncio.sleep(LOOK)
    finally:
        await broker.stop()


def broker_of(job: Job) -> Any:
    if job.variant == "confluent":
        from faststream.confluent import KafkaBroker
    else:
        from faststream.kafka import KafkaBroker
    # No type conversion, no line of log for each message: four thread hops and most of the time a message takes.
    return KafkaBroker(job.brokers, apply_types=False, logger=None)


def options(job: Job) -> dict[str, Any]:
    common = {"group_id": job.group, "auto_offset_reset": "earliest", "decoder": as_it_is}
    if job.size > 1:
        return {**common, "batch": True, "max_records": job.size}
    if job.at_once == 1:
        return common
    policy = AckPolicy.NACK_ON_ERROR if job.variant == "aiokafka-partition" else AckPolicy.ACK_FIRST
    return {**common, "max_workers": job.at_once, "ack_policy": policy}


async def as_it_is(message: Any) -> Any:
    """Give the handler the whole message, because it writes down partition and offset."""
    return message


def handler(job: Job) -> Callable[[Any], Awaitable[None]]:
    place = of_confluent if job.variant == "confluent" else of_aiokafka
    note, wait = writer(job.notes), job.wait

    async def handle(message: Any) -> None:
        start = time.monotonic()
        if wait:
            await asyncio.sleep(wait)
        note(*place(message.raw_message), start)

    async def handle_batch(message: Any) -> None:
        start = time.monotonic()
        await asyncio.sleep(wait)
        spread(note, [place(record) for record in message.raw_message], start)

    return handle_batch if job.size > 1 else handle


def of_confluent(message: Any) -> tuple[int, int]:
    return message.partition(), message.offset()


def of_aiokafka(record: Any) -> tuple[int, int]:
    return record.partition, record.offset


if __name__ == "__main__":
    uvloop.run(main())
