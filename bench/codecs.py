"""Decoding and encoding beside the bare libraries and Confluent's serializers, in one process, by turns.

``python bench/codecs.py [RECORDS]`` prints the median of five turns, in microseconds a record.
"""

from __future__ import annotations

import io
import json
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

import fastavro
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from machine import machine, tempo

from laneway.codecs import Avro, Json, SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

FIELDS = [
    "string",
    "long",
    "double",
    "boolean",
    "string",
    "long",
    ["null", "string"],
    {"type": "array", "items": "long"},
]
SCHEMA = {"type": "record", "name": "Event", "fields": [{"name": f"f{n}", "type": of} for n, of in enumerate(FIELDS)]}
VALUE = {
    "f0": "customer-0123456789" * 3, "f1": 1_763_490_000_000, "f2": 12.5, "f3": True,
    "f4": "eu-central-1/" * 4, "f5": 42, "f6": "note", "f7": [1, 2, 3],
}  # fmt: skip
TURNS = 5


def main() -> None:
    """Print a row for each way."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    registry = SchemaRegistry("mock://bench")
    codec = Avro(SCHEMA, registry=registry, register=True).for_topic("events")
    data, parsed = codec.encode(VALUE), fastavro.parse_schema(SCHEMA)
    client, context = registry._connected(), SerializationContext("events", MessageField.VALUE)  # noqa: SLF001
    theirs, their_writer = AvroDeserializer(client), AvroSerializer(client, json.dumps(SCHEMA))
    text = Json(dict)
    encoded = text.encode(VALUE)

    def read() -> object:
        buffer = io.BytesIO(data)
        buffer.seek(5)
        return fastavro.schemaless_reader(buffer, parsed, None)

    def write() -> bytes:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, VALUE)
        return buffer.getvalue()

    ways: dict[str, Callable[[], object]] = {
        "read: fastavro alone": read,
        "read: laneway Avro": lambda: codec.decode(data),
        "read: AvroDeserializer": lambda: theirs(data, context),
        "read: laneway Json": lambda: text.decode(encoded),
        "write: fastavro alone": write,
        "write: laneway Avro": lambda: codec.encode(VALUE),
        "write: AvroSerializer": lambda: their_writer(VALUE, context),
        "write: laneway Json": lambda: text.encode(VALUE),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, way in ways.items():
            began = time.perf_counter()
            for _ in range(count):
                way()
            found[name].append((time.perf_counter() - began) / count * 1e6)
    print(json.dumps(machine()), f"tempo {tempo()}")
    print(f"{len(data)} bytes of Avro, {len(encoded)} bytes of JSON; µs a record, median of {TURNS} turns")
    for name, values in found.items():
        print(f"  {name:26} {median(values):7.2f}")


if __name__ == "__main__":
    main()
