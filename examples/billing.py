"""Orders in, receipts out: the example of the README.

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


# A topic knows how its bytes become values; what is not an order never reaches the handler.
orders = Topic("orders", value=Json(Order))
receipts = Topic("receipts", value=Json(Receipt))

# The name is the consumer group, too.
app = App("billing")


# 64 customers of each partition are charged at once, each customer's orders one after the other. A charge that fails
# is tried twice more while its customer waits; then the order is parked on orders.billing.error.
@app.handler(orders, lanes=64, retry=Retry(attempts=3, backoff="100ms"))
async def charge(record: Record[Order]) -> Message[Receipt] | None:
    order = record.value
    if order.cents < 0:
        raise Reject("negative total")  # parked at once: trying again cannot help
    if order.cents == 0:
        return None  # nothing to charge, nothing to send
    await asyncio.sleep(0.02)  # your payment service
    # Returned, not sent: the order counts as done when the brokers have its receipt.
    return receipts.message(Receipt(order.number, order.cents), key=record.key)


if __name__ == "__main__":
    app.run()
