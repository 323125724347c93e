"""A bare confluent-kafka loop, as one writes it manually: one record or batch after the other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer
from job import Job, from_arguments
from notes import Notes, counter, spread, writer

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 1_000  # messages a consume() when a call is a no-op
WAIT = 0.5


def main() -> None:
    job = from_arguments()
    consumer = Consumer(
        {
            "bootstrap.servers": job.brokers,
            "group.id": job.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,
        }
    )
    consumer.subscribe([job.topic])
    try:
        if job.variant == "count":
            count(consumer, job)
        elif job.is_live:
            poll(consumer, job)
        elif job.size > 1:
            consume(consumer, job, job.size, batch_handler(job))
        else:
            consume(consumer, job, 1 if job.wait else MANY, each(handler(job)))
    finally:
        consumer.close()


def handler(job: Job) -> Callable[[Any], None]:
    note, wait = writer(job.notes), job.wait

    def handle(message: Any) -> None:
        start = time.monotonic()
        check(message)
        if wait:
            time.sleep(wait)
        note(message.partition(), message.offset(), start)

    return handle


def batch_handler(job: Job) -> Callable[[list[Any]], None]:
    note, wait = writer(job.notes), job.wait

    def handle(messages: list[Any]) -> None:
        start = time.monotonic()
        time.sleep(wait)
        for message in messages:
            check(message)
        spread(note, [(message.partition(), message.offset()) for message in messages], start)

    return handle


def check(message: Any) -> None:
    if message.error():
        raise RuntimeError(message.error())


def each(handle: Callable[[Any], None]) -> Callable[[list[Any]], None]:
    def handle_all(messages: list[Any]) -> None:
        for message in messages:
            handle(message)

    return handle_all


def consume(consumer: Any, job: Job, most: int, handle: Callable[[list[Any]], None]) -> None:
    notes, seen = Notes(job.notes), 0
    while seen < job.records or not notes.is_complete:
        # consume(n) waits for all n: the last call asks for no more than there are.
        messages = consumer.consume(max(1, min(most, job.records - seen)), WAIT)
        if messages:
            handle(messages)
            seen += len(messages)


def poll(consumer: Any, job: Job) -> None:
    notes, seen, handle = Notes(job.notes), 0, handler(job)
    while seen < job.records or not notes.is_complete:
        message = consumer.poll(WAIT)
        if message is not None:
            handle(message)
            seen += 1


def count(consumer: Any, job: Job) -> None:
    write, seen, first = counter(job.notes), 0, 0.0
    while seen < job.records:
        messages = consumer.consume(min(MANY, job.records - seen), WAIT)
        first = first or time.monotonic()
        seen += len(messages)
        write(seen, first, time.monotonic())


if __name__ == "__main__":
    main()
