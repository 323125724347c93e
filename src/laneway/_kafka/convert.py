"""Kafka messages as an Arrow table, column by column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._declare.record import Record

__all__ = ["HEADERS", "SCHEMA", "table_of", "table_of_records"]

HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.dictionary(pa.int8(), pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
"""The schema of a columnar handler's tables. The topic is a dictionary column: one text for all rows."""


def table_of(topic: str, messages: list[Any]) -> pa.Table:
    """Build a table without an object per record beyond the client's own messages."""
    rows = len(messages)
    headers = [message.headers() for message in messages]
    if any(headers):
        listed = pa.array(
            [None if h is None else [{"name": name, "value": value} for name, value in h] for h in headers], HEADERS
        )
    else:
        listed = pa.nulls(rows, HEADERS)
    zeros = (
        pa.array(bytes(rows), pa.int8())
        if rows < 2
        else pa.Array.from_buffers(pa.int8(), rows, [None, pa.py_buffer(bytes(rows))])
    )
    return pa.Table.from_arrays(
        [
            pa.DictionaryArray.from_arrays(zeros, pa.array([topic])),
            pa.array([message.partition() for message in messages], pa.int32()),
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array([message.timestamp()[1] for message in messages], pa.int64()),
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
            listed,
        ],
        schema=SCHEMA,
    )


def table_of_records(topic: str, records: Sequence[Record[Any]]) -> pa.Table:
    """As `table_of`, from records."""
    return table_of(topic, [_AsMessage(record) for record in records])


class _AsMessage:
    """A record with the accessors of a client's message, which `table_of` reads."""

    __slots__ = ("_record",)

    def __init__(self, record: Record[Any]) -> None:
        self._record = record

    def partition(self) -> int:
        return self._record.partition

    def offset(self) -> int:
        return self._record.offset

    def timestamp(self) -> tuple[int, int]:
        return (1, self._record.timestamp)

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.raw

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self._record.headers) or None
