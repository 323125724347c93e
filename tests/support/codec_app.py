"""An app for `laneway run support.codec_app:app`: it reads Avro of any schema and writes Avro of its own.

The registry is at IT_REGISTRY, receipts go to IT_RECEIPTS, and IT_KIND chooses a kind of handler.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from laneway import App, Batch, Message, Record, Retry, Topic
from laneway.codecs import Avro, SchemaRegistry
from laneway.devkit.history import Recorder

__all__ = ["Order", "Receipt", "app", "receipts_of"]


@dataclass
class Order:
    id: str
    total: int = 0


@dataclass
class Receipt:
    order: str
    attempt: int


def receipts_of(registry: SchemaRegistry) -> Avro[Receipt]:
    """The codec of receipts."""
    return Avro(Receipt, registry=registry, register=True)


_registry = SchemaRegistry(os.environ.get("IT_REGISTRY", "http://127.0.0.1:1"), timeout=2)
_recorder = Recorder(os.environ.get("IT_HISTORY", "."))
_orders: Topic[Any] = Topic(os.environ.get("IT_TOPIC", "it"), value=Avro(registry=_registry))
_receipts = Topic(os.environ.get("IT_RECEIPTS", "receipts"), value=receipts_of(_registry))
_retry = Retry(attempts=2, backoff="10ms")

app = App(os.environ.get("IT_APP", "it"))


def _receipt(record: Record[Any]) -> Message[Receipt]:
    _recorder.write(record, time.monotonic())
    return _receipts.message(Receipt(record.value["id"], record.attempt), key=record.key)


if os.environ.get("IT_KIND") == "batch":

    @app.batch_handler(_orders, size=20, within="50ms", retry=_retry, lanes=4)
    def handle_batch(batch: Batch[Any]) -> list[Message[Receipt]]:
        return [_receipt(record) for record in batch]

elif os.environ.get("IT_KIND") == "sync":

    @app.handler(_orders, lanes=10, retry=_retry)
    def handle_sync(record: Record[Any]) -> Message[Receipt]:
        return _receipt(record)

else:

    @app.handler(_orders, lanes=10, retry=_retry)
    async def handle(record: Record[Any]) -> Message[Receipt]:
        return _receipt(record)
