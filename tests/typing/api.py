"""The public types, checked by mypy and never run: what must pass, and what must be refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laneway import App, Batch, Json, Message, Record, Reject, Retry, Topic

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Order:
    id: str
    total: int


@dataclass
class Receipt:
    order: str


orders = Topic("orders", value=Json(Order))
receipts = Topic("receipts", value=Json(Receipt))
app = App("billing")


@app.handler(orders, lanes=64, retry=Retry(attempts=3, backoff="100ms"))
async def charge(record: Record[Order]) -> Message[Receipt] | None:
    if record.value.total < 0:
        raise Reject("negative total")
    return receipts.message(Receipt(record.value.id), key=record.key)


@app.batch_handler(orders, size=500, within="2s")
def archive(batch: Batch[Order]) -> None:
    totals: list[int] = [order.total for order in batch.values]
    del totals


@app.columnar_handler(orders, size=50_000)
def count(table: pa.Table) -> None:
    del table


receipts.message(Order("1", 2))  # type: ignore[arg-type]
orders.record(Receipt("1"))  # type: ignore[arg-type]
App(1)  # type: ignore[arg-type]
