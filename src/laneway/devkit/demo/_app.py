"""The app of the demo: orders in, receipts out. An ordinary app."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from laneway import App, Json, Message, Record, Reject, Retry, Topic
from laneway.devkit.demo._calls import noted

__all__ = ["CALL", "LANES", "Order", "Receipt", "app", "charge", "orders", "receipts"]

CALL = 0.02
"""Seconds per call of the payment service."""
LANES = 25


@dataclass(frozen=True, slots=True)
class Order:
    """An order of a customer."""

    number: int
    customer: str
    cents: int
    card: str = "good"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A payment."""

    number: int
    cents: int


orders = Topic("orders", value=Json(Order))
receipts = Topic("receipts", value=Json(Receipt))
app = App("demo")


@app.handler(orders, lanes=LANES, retry=Retry(attempts=3, backoff="50ms"))
async def charge(record: Record[Order]) -> Message[Receipt]:
    """Charge an order; orders of one customer are charged one after the other, in order."""
    with noted(record):  # the demo records every call, to check them afterwards
        if record.is_tombstone:
            return receipts.message(None, key=record.key)
        order = record.value
        if order.cents < 0:
            raise Reject(f"order {order.number} has a negative total")
        await pay(order, record.attempt)
        return receipts.message(Receipt(order.number, order.cents), key=record.key)


async def pay(order: Order, attempt: int) -> None:
    """A payment service that is slow, and fails at first for some cards."""
    await asyncio.sleep(CALL)
    if order.card == "unstable" and attempt == 1:
        raise ConnectionError("the payment service hung up")
