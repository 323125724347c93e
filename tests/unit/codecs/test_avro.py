"""Avro: schemas of types, frames, evolution, and what Confluent's own serializers write."""

from __future__ import annotations

import datetime as dt
import enum
import json
import pickle
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, make_dataclass

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from laneway.codecs import Avro, SchemaRegistry
from laneway.errors import CodecError, DeclarationError


class Colour(enum.Enum):
    RED = "RED"
    BLUE = "BLUE"


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: str
    total: int
    at: dt.datetime
    lines: list[Line] = field(default_factory=list)
    note: str | None = None
    colour: Colour = Colour.RED
    token: uuid.UUID | None = None
    weights: dict[str, float] = field(default_factory=dict)
    image: bytes = b""


def order(**changes):
    found = Order("7", 12, dt.datetime(2026, 11, 19, 8, tzinfo=dt.UTC), [Line("a"), Line("b", 2)], "hi", Colour.BLUE)
    return Order(**{**found.__dict__, **changes})


def registry():
    return SchemaRegistry(f"mock://{uuid.uuid4().hex}")


@pytest.mark.parametrize(
    "value",
    [order(), order(note=None, token=uuid.uuid4(), weights={"x": 1.5}, image=b"\0\xff"), order(lines=[])],
)
def test_a_dataclass_survives(value):
    """Every field of a dataclass comes back as it was, with nested types, unions, enums and times."""
    codec = Avro(Order)
    assert codec.decode(codec.encode(value)) == value


def test_the_schema_of_a_type_has_its_defaults():
    """Fields with defaults have them in the schema, so that readers of older values have them, too."""
    fields = {each["name"]: each for each in json.loads(Avro(Order)._schema().text)["fields"]}
    assert fields["note"] == {"name": "note", "type": ["null", "string"], "default": None}
    assert fields["colour"]["default"] == "RED"
    assert fields["lines"]["default"] == []
    assert "default" not in fields["id"]


@pytest.mark.parametrize("type_", [dict[int, str], int | str | list[int] | complex, object])
def test_a_type_without_an_avro_type_is_refused(type_):
    """What cannot be derived is said, together with the way out."""
    with pytest.raises(DeclarationError, match="schema="):
        Avro(make_dataclass("Odd", [("thing", type_)]))


def test_a_pydantic_model_needs_its_schema():
    """Models of pydantic are validated; their schema is given."""

    class Point(BaseModel):
        x: int

    with pytest.raises(DeclarationError, match="give it schema="):
        Avro(Point)
    schema = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "long"}]}
    codec = Avro(Point, schema=schema)
    assert codec.decode(codec.encode(Point(x=3))) == Point(x=3)


def test_dicts_of_a_schema():
    """Without a type the values are those of fastavro."""
    codec = Avro('{"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]}')
    assert codec.decode(codec.encode({"x": 5})) == {"x": 5}
    assert Avro("string").decode(Avro("string").encode("é")) == "é"


@pytest.mark.parametrize("schema", ["{", '{"type": "record"}', {"type": "nothing"}])
def test_a_wrong_schema_is_refused_where_it_is_declared(schema):
    """A schema that is none is an error of the declaration, not of each record."""
    with pytest.raises(DeclarationError, match="Avro schema"):
        Avro(schema)


@given(st.binary(max_size=60))
def test_hostile_bytes_are_undecodable(data):
    """Any bytes either are a value of the schema or a `CodecError`."""
    codec = Avro(Order)
    with suppress(CodecError):
        assert isinstance(codec.decode(data), Order)


def test_bytes_behind_the_value_are_an_error():
    """A value that is followed by more was written with another schema; silence would be a wrong value."""
    codec = Avro("long")
    with pytest.raises(CodecError, match="1 bytes are left"):
        codec.decode(codec.encode(1) + b"\0")


def test_a_value_of_another_type_is_not_written():
    """The error names the type of the value."""
    with pytest.raises(CodecError, match="cannot write Line"):
        Avro(Order).encode(Line("a"))


def test_a_fixed_id_is_written_and_required():
    """Without a registry a fixed id stands in front, and another id is refused."""
    seven, eight = Avro("long", schema_id=7), Avro("long", schema_id=8)
    assert seven.encode(1) == b"\0\0\0\0\7\2"
    assert seven.decode(seven.encode(1)) == 1
    with pytest.raises(CodecError, match="schema 7; this topic has schema 8"):
        eight.decode(seven.encode(1))


@pytest.mark.parametrize("options", [{"schema_id": -1}, {"schema_id": 2**31}, {"register": True}])
def test_frames_that_cannot_be(options):
    """Wrong ids, and registering without a registry, are refused where they are declared."""
    with pytest.raises(DeclarationError):
        Avro("long", **options)


def test_what_confluents_serializer_writes_is_read():
    """A value of Confluent's own serializer has the id in front, and the schema comes from the registry."""
    known, schema = registry(), {"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]}
    data = AvroSerializer(known._connected(), json.dumps(schema))(
        {"x": 4}, SerializationContext("points", MessageField.VALUE)
    )
    assert Avro(registry=known).decode(data) == {"x": 4}
    assert Avro(schema, registry=known).for_topic("points").encode({"x": 4}) == data


def test_a_value_of_an_older_schema_is_read_by_the_new_one():
    """The writer's schema decides what the bytes mean; fields that it lacks have their defaults."""
    known = registry()
    old = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
    data = Avro(old, registry=known, register=True).for_topic("lines").encode({"sku": "a"})
    assert Avro(Line, registry=known).decode(data) == Line("a", 1)


def test_a_codec_of_a_registry_is_pickled_without_its_connection():
    """Workers get the declaration; each makes its own connection and learns by itself."""
    known = registry()
    codec = Avro(Line, registry=known, register=True).for_topic("lines")
    data = codec.encode(Line("a"))
    copy = pickle.loads(pickle.dumps(codec))  # noqa: S301 - our own bytes
    assert copy == codec
    assert hash(copy) == hash(codec)
    assert copy._readers == {}
    assert codec.decode(data) == Line("a")
    with pytest.raises(CodecError, match="knows no schema"):
        copy.decode(data)  # the registry in memory of another connection is empty


def test_keys_have_a_subject_of_their_own():
    """Keys and values of a topic are registered apart."""
    known = registry()
    codec = Avro("long", registry=known, register=True)
    codec.for_topic("orders").encode(1)
    codec.for_topic("orders", "key").encode(1)
    client = known._connected()
    assert sorted(client.get_subjects()) == ["orders-key", "orders-value"]
