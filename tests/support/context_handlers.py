"""Handlers and an interceptor that know the record only from `current_record`. At the top level, for processes."""

from __future__ import annotations

import asyncio
import time

from laneway import Message, Record, Topic, current_record

__all__ = ["correlate", "handle", "handle_async", "out_topic"]


def out_topic(record: Record) -> Topic:
    """Where a handler's message goes: the header `out` names it."""
    return Topic(record.header("out").decode())


def handle(record: Record) -> Message:
    """Give other lanes time, then say which record is the current one."""
    time.sleep(0.002)
    found = current_record()
    return out_topic(record).message(b"%d:%d" % (found.partition, found.offset), key=record.key)


async def handle_async(record: Record) -> Message:
    """As `handle`, on an event loop."""
    await asyncio.sleep(0.002)
    found = await asyncio.create_task(_current())
    return out_topic(record).message(b"%d:%d" % (found.partition, found.offset), key=record.key)


async def _current() -> Record:
    return current_record()


def correlate(message: Message) -> Message:
    """Give a message the id of the record."""
    return message.replaced(headers=[("id", current_record().header("id"))])
