"""The Confluent wire format."""

from __future__ import annotations

import uuid
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.codecs._wire_format import framed_id, prefix_of, read_indexes, schema_id_in, write_indexes
from laneway.errors import CodecError


@given(st.integers(0, 2**31 - 1), st.binary())
def test_an_id_is_read_as_it_was_written(schema_id, payload):
    """The id in front of a value survives, whatever follows."""
    assert framed_id(prefix_of(schema_id) + payload) == schema_id


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\1", b"\1\0\0\0\1x", b'{"a": 1}'])
def test_a_value_without_a_frame_is_refused(data):
    """A value that has no id in front is an error of the record and not of the program."""
    with pytest.raises(CodecError, match="no schema id"):
        framed_id(data)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6), st.binary())
def test_indexes_are_read_as_they_were_written(indexes, payload):
    """The position of a Protobuf message survives on all levels."""
    data = write_indexes(indexes) + payload
    assert read_indexes(data, 0) == (indexes, len(write_indexes(indexes)))


@pytest.mark.parametrize("data", [b"\0", b"\2\0"])
def test_both_forms_of_the_first_message(data):
    """Writers that do not shorten the first message to one byte are understood."""
    assert read_indexes(data, 0) == ([0], len(data))


@given(st.binary(max_size=40))
def test_hostile_indexes_end_in_an_error(data):
    """Bytes that are no indexes never hang or crash."""
    with suppress(CodecError):
        assert read_indexes(data, 0)[1] <= len(data)


def test_ids_in_headers():
    """The last header of the right part counts; GUIDs and numbers are read, and what follows them is kept."""
    guid = uuid.UUID(int=7)
    headers = [
        ("__value_schema_id", b"\1" + uuid.UUID(int=1).bytes),
        ("__key_schema_id", b"\0\0\0\0\3"),
        ("__value_schema_id", b"\1" + guid.bytes + b"\0"),
    ]
    assert schema_id_in(headers, "value") == (str(guid), b"\0")
    assert schema_id_in(headers, "key") == (3, b"")
    assert schema_id_in([("other", b"x")], "value") is None
    with pytest.raises(CodecError, match="__value_schema_id"):
        schema_id_in([("__value_schema_id", b"\7abc")], "value")
