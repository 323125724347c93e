"""Correlation ids: each message has the id of the record that led to it, and no handler knows of ids.

$ laneway run correlation:app --once
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cache

from laneway import App, Json, Message, Record, Topic, current_record
from laneway.producer import Producer

HEADER = "correlation-id"


@dataclass
class Booking:
    number: int
    customer: str
    cents: int


# The key of an invoice is taken from its value.
bookings = Topic("bookings", value=Json(Booking))
invoices = Topic("invoices", value=Json(dict), key=lambda invoice: invoice["customer"])
audit = Topic("audit", value=Json(dict))

app = App("correlation")


def correlated(message: Message) -> Message:
    """Give a message the id of the record that is being handled, or a new one if the record has none."""
    record = current_record()
    found = None if record is None else record.header(HEADER)
    return message.replaced(headers=[*message.headers, (HEADER, found or uuid.uuid4().hex.encode())])


# For messages that handlers return.
app.produce_interceptor()(correlated)


# For messages that code below a handler sends itself. Made on first use, in the process that uses it; the settings are
# those of the app: laneway.yaml and the environment.
@cache
def producer() -> Producer:
    return Producer(interceptors=[correlated])


@app.cleanup
def close() -> None:
    producer().close()


async def note(action: str, booking: Booking) -> None:
    await producer().produce(audit.message({"action": action, "number": booking.number}))


@app.handler(bookings, lanes=16)
async def bill(record: Record[Booking]) -> Message[dict]:
    await note("billed", record.value)
    return invoices.message({"customer": record.value.customer, "cents": record.value.cents})
