"""Protobuf: frames with message indexes, as Confluent's own serializer writes them."""

from __future__ import annotations

import importlib.util
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from laneway.codecs import Protobuf, SchemaRegistry
from laneway.errors import CodecError, DeclarationError

_spec = importlib.util.spec_from_file_location("messages", Path(__file__).with_name("messages.py"))
messages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(messages)


@pytest.mark.parametrize(
    ("value", "head"),
    [
        (messages.Customer(name="Eva"), b"\0"),
        (messages.Order(id="7", total=3), b"\2\2"),
        (messages.Address(street="Long"), b"\4\0\0"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_confluents_serializer_writes_is_written_and_read(value, head):
    """Id, message indexes and message are those of Confluent's own serializer, for each place in a file."""
    known = SchemaRegistry(f"mock://{uuid.uuid4().hex}")
    theirs = ProtobufSerializer(type(value), known._connected(), {"use.deprecated.format": False})
    data = theirs(value, SerializationContext("shop", MessageField.VALUE))
    assert data[5:].startswith(head)
    codec = Protobuf(type(value), registry=known).for_topic("shop")
    assert codec.decode(data) == value
    assert codec.encode(value) == data


def test_the_long_form_of_the_first_message_is_read():
    """Some writers do not shorten the indexes of the first message."""
    codec = Protobuf(messages.Customer, schema_id=1)
    value = messages.Customer(name="Eva")
    assert codec.decode(b"\0\0\0\0\1\2\0" + value.SerializeToString()) == value


def test_another_message_of_the_file_is_refused():
    """A message that is another one would be read as nonsense."""
    data = Protobuf(messages.Order, schema_id=1).encode(messages.Order(id="7"))
    with pytest.raises(CodecError, match=r"message \[1\] of its file; Customer is message \[0\]"):
        Protobuf(messages.Customer, schema_id=1).decode(data)


def test_the_bare_message():
    """Without registry and id there is no frame."""
    codec = Protobuf(messages.Order)
    value = messages.Order(id="7", total=1)
    assert codec.encode(value) == value.SerializeToString()
    assert codec.decode(codec.encode(value)) == value


def test_the_wrong_value_is_not_written():
    """The error names both types."""
    with pytest.raises(CodecError, match="takes Order, not Customer"):
        Protobuf(messages.Order).encode(messages.Customer())


@given(st.binary(max_size=40))
def test_hostile_bytes_are_undecodable(data):
    """Any bytes either are a message or a `CodecError`."""
    for codec in (Protobuf(messages.Order), Protobuf(messages.Address, schema_id=1)):
        with suppress(CodecError):
            assert codec.decode(data) is not None


def test_a_class_that_is_no_message_is_refused():
    """The declaration says what is wrong."""
    with pytest.raises(DeclarationError, match="no generated Protobuf message class"):
        Protobuf(dict)
