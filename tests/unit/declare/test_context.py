"""`current_record` names the record that the calling code handles."""

from __future__ import annotations

import asyncio
import threading

from laneway import App, Message, Record, Topic, current_record
from laneway.testing import running

orders, notes = Topic("orders"), Topic("notes")


def test_each_async_call_sees_its_own_record():
    """Calls of one event loop take turns in the middle of a call, and a task that a handler starts keeps its record."""
    app, seen = App("shop"), []

    @app.handler(orders, lanes=8)
    async def handle(record: Record[bytes]) -> None:
        later = asyncio.create_task(note(record))
        await asyncio.sleep(1)
        seen.append((record.key, current_record().key))
        await later

    async def note(record: Record[bytes]) -> None:
        await asyncio.sleep(2)
        seen.append((record.key, current_record().key))

    with running(app) as kafka:
        for number in range(8):
            kafka.produce(orders.message(b"", key=str(number)))
        kafka.drain()
    assert len(seen) == 16
    assert all(mine == found for mine, found in seen)
    assert current_record() is None


def test_each_thread_sees_its_own_record():
    """Two sync calls that run at the same time see different records; afterwards there is none."""
    from contextvars import copy_context

    from laneway._clock import SystemClock
    from laneway._core.call import Call
    from laneway._core.scheduler import KeyQueue

    app, seen, together = App("shop"), {}, threading.Barrier(2, timeout=30)

    @app.handler(orders, lanes=2)
    def handle(record: Record[bytes]) -> None:
        together.wait()
        seen[record.offset] = current_record()

    call = Call(app.routes[0], SystemClock())

    def lane(record: Record[bytes]) -> None:
        call.single([KeyQueue(None, [record], lane=0, taken=1, is_busy=True)])
        seen[f"after {record.offset}"] = current_record()

    records = [orders.record(b"", offset=number) for number in range(2)]
    lanes = [threading.Thread(target=copy_context().run, args=(lane, record)) for record in records]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join(30)
    assert seen == {0: records[0], 1: records[1], "after 0": None, "after 1": None}


def test_a_produce_interceptor_sees_the_record_that_is_handled():
    """A correlation id passes from the record to the message, and the handler does not know it."""
    app = App("shop")

    @app.handler(orders)
    def handle(record: Record[bytes]) -> Message[bytes]:
        return notes.message(b"seen")

    @app.produce_interceptor()
    def correlate(message: Message[bytes]) -> Message[bytes]:
        return message.replaced(headers=[("correlation-id", current_record().header("correlation-id"))])

    with running(app) as kafka:
        kafka.produce(orders.message(b"", headers=[("correlation-id", b"42")]))
        kafka.drain()
        assert kafka.records(notes)[0].header("correlation-id") == b"42"


def test_a_batch_has_no_current_record():
    """A batch handler handles several records, so none of them is the current one, also behind single ones."""
    app, seen = App("shop"), []

    @app.batch_handler(orders, size=2)
    def handle(batch) -> None:
        seen.append(current_record())

    with running(app) as kafka:
        kafka.produce(orders.message(b""), orders.message(b""))
        kafka.drain()
    assert seen
    assert not any(seen)
