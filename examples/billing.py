"""Orders in, receipts out: a longer version of the README's example.

$ laneway run billing:app --once
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from laneway import App, Json, Message, Record, Reject, Retry, Topic


@dataclass
class Order:
    number: int
    customer: str
    cents: int


@dataclass
class Receipt:
    number: int
    cents: int


# A topic has a codec. A record that is not an order is parked without a call of the handler.
orders = Topic("orders", value=Json(Order))
receipts = Topic("receipts", value=Json(Receipt))

# The name is also the consumer group.
app = App("billing")


# Charges 64 customers of each partition at once, and the orders of one customer one after the other. A charge that
# fails is retried twice while its customer waits; then the order is parked on orders.billing.error.
@app.handler(orders, lanes=64, retry=Retry(attempts=3, backoff="100ms"))
async def charge(record: Record[Order]) -> Message[Receipt] | None:
    order = record.value
    if order.cents < 0:
        raise Reject("negative total")  # parked without a retry: retrying cannot help
    if order.cents == 0:
        return None  # nothing to charge, nothing to send
    await asyncio.sleep(0.02)  # your payment service
    # Return it instead of sending it: the order is finished when the brokers have acknowledged its receipt.
    return receipts.message(Receipt(order.number, order.cents), key=record.key)


if __name__ == "__main__":
    app.run()
