"""The public types, checked by mypy and never run: what must pass, and what must be refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laneway import App, Batch, ErrorConsumer, GroupedBy, Grouping, Json, Message, Record, Reject, Retry, Topic
from laneway.events import BatchHandled, Event, RecordParked, RecordRetried, StateChanged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
app = App("billing", errors=ErrorConsumer(cron="*/15 * * * *", max_errors=5, stop_when_new="5m", action="handle"))


@app.handler(orders, lanes=64, retry=Retry(attempts=3, backoff="100ms", retriable=(OSError, KeyError)))
async def charge(record: Record[Order]) -> Message[Receipt] | None:
    if record.value.total < 0:
        raise Reject("negative total")
    return receipts.message(Receipt(record.value.id), key=record.key)


@app.error_handler(of=charge)
def charge_again(record: Record[Order]) -> None:
    del record


ErrorConsumer(action="replay", max_errors=None)
ErrorConsumer(action="drop")  # type: ignore[arg-type]


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


@app.consume_interceptor(of=charge)
def decrypted(record: Record[Order]) -> Record[Order] | None:
    return None if record.is_tombstone else record.replaced(value=Order("1", 2))


@app.produce_interceptor()
def stamped(message: Message[Any]) -> Message[Any]:
    return message.replaced(headers=[("v", b"1")])


@app.error_interceptor(of="archive")
def masked(message: Message[bytes], record: Record[Any], error: Exception) -> Message[bytes] | None:
    return message.replaced(value=b"***") if record.key else None


@app.consume_interceptor()  # type: ignore[type-var]
def not_a_record(record: Record[Order]) -> str:
    return record.topic


@app.error_interceptor()  # type: ignore[type-var]
def too_few_arguments(message: Message[bytes]) -> Message[bytes]:
    return message


@app.on(RecordParked)
def alarm(event: RecordParked) -> None:
    text: str = event.error
    del text


@app.on(RecordParked, RecordRetried)
def note(event: RecordParked | RecordRetried) -> None:
    offset: int = event.offset
    del offset


@app.on(BatchHandled, StateChanged, RecordParked, RecordRetried)
def log(event: Event) -> None:
    del event


@app.on(RecordParked)  # type: ignore[arg-type]
def wrong_event(event: RecordRetried) -> None:
    del event


app.on(Order)  # type: ignore[type-var]
app.tell(RecordParked("charge", "orders", 0, 1, 1, "Error: no", "orders.error"))


@app.batch_handler(orders, size=500, bisect=True)
async def store(batch: Batch[Order]) -> Message[Receipt]:
    return receipts.message(Receipt(batch.values[0].id))


class Pairs:
    def split(self, records: Sequence[Record[Order]]) -> Iterator[Sequence[Record[Order]]]:
        for first in range(0, len(records), 2):
            yield records[first : first + 2]


@app.custom_handler(orders, kind=Pairs(), size=500, within="2s")
def pair(batch: Batch[Order]) -> None:
    del batch


class NoKind:
    def split(self, records: Sequence[Record[Order]]) -> list[Order]:
        return [record.value for record in records]


kinds: list[Grouping] = [Pairs(), GroupedBy("id")]
app.custom_handler(orders, kind=kinds[1], size=5, bisect=True)
app.custom_handler(orders, kind=NoKind(), size=5)  # type: ignore[arg-type]
app.custom_handler(orders, kind="customer.id", size=5)  # type: ignore[arg-type]
app.batch_handler(orders, size=500, bisect="yes")  # type: ignore[arg-type]
