"""Codecs and a real registry: ids, evolution, compatibility, and an outage."""

from __future__ import annotations

import importlib.util
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, make_dataclass
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from laneway.codecs import Avro, Json, Protobuf, SchemaRegistry
from laneway.errors import CodecError, SchemaRegistryError
from support.schema_registry import schema_registry

pytestmark = pytest.mark.broker

_spec = importlib.util.spec_from_file_location("messages", Path(__file__).parents[2] / "unit/codecs/messages.py")
messages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(messages)


@dataclass
class Order:
    id: str
    total: int = 0


@pytest.fixture(scope="module")
def server():
    with schema_registry() as running:
        yield running


@pytest.fixture
def connect():
    """Registries, whose connections end with the test."""
    with ExitStack() as stack:

        def made(server, **options):
            registry = SchemaRegistry(server.url, **options)
            stack.callback(registry.close)
            return registry

        yield made


@pytest.fixture
def client(server):
    with SchemaRegistryClient({"url": server.url}) as made:
        yield made


@pytest.fixture
def topic():
    return f"orders-{uuid.uuid4().hex[:8]}"


def test_another_process_reads_what_was_written(server, connect, topic):
    """The schema reaches readers by its id alone: one without a schema of its own reads the value as a dict."""
    data = Avro(Order, registry=connect(server), register=True).for_topic(topic).encode(Order("x", 7))
    assert Avro(registry=connect(server)).decode(data) == {"id": "x", "total": 7}


def test_values_of_confluents_own_serializers(server, client, connect, topic):
    """Avro and Protobuf that Confluent's serializers have written are read, and ours is read by Confluent's."""
    known = connect(server)
    context = SerializationContext(topic, MessageField.VALUE)
    codec = Avro(Order, registry=known).for_topic(topic)
    theirs = AvroSerializer(client, codec._schema().text, lambda value, _: value.__dict__)(Order("x", 7), context)
    assert codec.decode(theirs) == Order("x", 7)
    assert AvroDeserializer(client)(codec.encode(Order("y", 8)), context) == {"id": "y", "total": 8}
    context = SerializationContext(f"{topic}.proto", MessageField.VALUE)
    value = messages.Address(street="Long")
    theirs = ProtobufSerializer(messages.Address, client, {"use.deprecated.format": False})(value, context)
    codec = Protobuf(messages.Address, registry=known).for_topic(f"{topic}.proto")
    assert (codec.decode(theirs), codec.encode(value)) == (value, theirs)


def test_old_and_new_values_on_one_topic(server, connect, topic):
    """Readers of the old and of the new schema read both; each value is read by the schema that wrote it."""
    known = connect(server)
    newer = make_dataclass("Order", [("id", str), ("total", int, 0), ("note", str, "")])
    old = Avro(Order, registry=known, register=True).for_topic(topic)
    new = Avro(newer, registry=known, register=True).for_topic(topic)
    values = old.encode(Order("x", 1)), new.encode(newer("y", 2, "n"))
    assert [old.decode(value) for value in values] == [Order("x", 1), Order("y", 2)]
    assert [new.decode(value) for value in values] == [newer("x", 1, ""), newer("y", 2, "n")]


def test_a_schema_that_breaks_readers_is_not_written(server, connect, topic):
    """A schema that cannot read the values there are is refused before the first message."""
    known = connect(server)
    Avro(Order, registry=known, register=True).for_topic(topic).encode(Order("x"))
    other = make_dataclass("Order", [("id", int), ("extra", str)])
    with pytest.raises(CodecError, match="not compatible"):
        Avro(other, registry=known, register=True).for_topic(topic).encode(other(1, "x"))


def test_json_schemas(server, connect, topic):
    """JSON values carry the id of the JSON schema of their type."""
    known = connect(server)
    data = Json(Order, registry=known, register=True).for_topic(topic).encode(Order("x", 1))
    assert data[0] == 0
    assert Json(Order, registry=connect(server)).decode(data) == Order("x", 1)


def test_an_outage_stops_what_is_new_and_nothing_else(connect, topic):
    """With the registry gone known ids are read and written; unknown ones wait, and are read when it is back."""
    with schema_registry() as server:
        known = connect(server)
        codec = Avro(Order, registry=known, register=True).for_topic(topic)
        data = codec.encode(Order("x"))
        stranger = Avro(registry=connect(server, timeout=1))
        server.stop()
        assert codec.decode(data) == Order("x")
        assert codec.encode(Order("x")) == data
        with pytest.raises(SchemaRegistryError, match="does not answer"):
            stranger.decode(data)
        server.start()
        Avro(Order, registry=connect(server), register=True).for_topic(topic).encode(Order("x"))
        began = time.monotonic()
        while True:
            try:
                assert stranger.decode(data) == {"id": "x", "total": 0}
            except SchemaRegistryError as error:
                assert time.monotonic() - began < 10
                time.sleep(error.retry_after)
            else:
                break


def test_processes_that_register_the_same_schema_at_once(server, connect, topic):
    """Writers that begin together get the same id, whichever was first."""
    codecs = [Avro(Order, registry=connect(server), register=True).for_topic(topic) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda codec: codec.encode(Order("x")), codecs))
    assert len(found) == 1
