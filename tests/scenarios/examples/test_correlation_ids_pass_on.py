"""examples/correlation.py on a real broker."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("engine", ["direct", pytest.param("spark", marks=pytest.mark.spark)])
def test_each_message_has_the_id_of_its_booking(examples, cluster, engine):
    """Messages that the handler returns and those that it sends itself have the id of the record, on both engines."""
    examples.produce("bookings", 60)
    before = {topic: _positions(examples, topic) for topic in ("invoices", "audit")}
    examples.run("correlation:app", "--engine", engine, LANEWAY_BROKERS=cluster.bootstrap)
    ids = {record.raw: record.header("correlation-id") for record in examples.read("bookings")}
    numbers = {name: json.loads(raw)["number"] for raw, name in ids.items()}
    notes = [record for record in examples.read("audit") if _position(record) not in before["audit"]]
    assert notes
    assert all(numbers[note.header("correlation-id")] == json.loads(note.raw)["number"] for note in notes)
    invoices = [record for record in examples.read("invoices") if _position(record) not in before["invoices"]]
    assert len(invoices) == len(notes)
    assert {record.header("correlation-id") for record in invoices} == {n.header("correlation-id") for n in notes}
    assert all(record.key == json.loads(record.raw)["customer"].encode() for record in invoices)


def _positions(examples, topic):
    return {_position(record) for record in examples.read(topic)}


def _position(record):
    return record.partition, record.offset
