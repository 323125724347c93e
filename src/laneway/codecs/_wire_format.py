"""The Confluent wire format: a schema's id in front of the value, or in a header."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Literal

from laneway.errors import CodecError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MOST_ID", "Part", "SchemaId", "framed_id", "prefix_of", "read_indexes", "schema_id_in", "write_indexes"]

Part = Literal["key", "value"]
SchemaId = int | str
"""A number, or the GUID that stands in a header."""

_MAGIC, _MAGIC_GUID = 0, 1
_SIZE, _SIZE_GUID = 5, 17
MOST_ID = 2**31 - 1
_MOST_INDEXES = 100  # levels of nested messages; more is no Protobuf record


def prefix_of(schema_id: int) -> bytes:
    """What stands in front of a value: a zero byte, and the id in four bytes.

    Example:
        >>> prefix_of(258).hex()
        '0000000102'
    """
    return bytes((_MAGIC,)) + schema_id.to_bytes(4, "big")


def framed_id(data: bytes) -> int:
    """The id in front of a value; the value begins at the sixth byte.

    Raises:
        CodecError: no id stands there.
    """
    if len(data) < _SIZE or data[0] != _MAGIC:
        shown = data[:_SIZE].hex(" ") or "nothing"
        raise CodecError(f"no schema id in front of the value (it begins with {shown}); it was not written by a codec "
                         "that uses a schema registry")  # fmt: skip
    return int.from_bytes(data[1:_SIZE], "big")


def schema_id_in(headers: Sequence[tuple[str, bytes | None]], part: Part) -> tuple[SchemaId, bytes] | None:
    """The schema id in the headers of a record, and what stands behind it; None when there is none.

    Raises:
        CodecError: the header has another form.
    """
    name = f"__{part}_schema_id"
    for found, value in reversed(headers):
        if found == name and value:
            if value[0] == _MAGIC_GUID and len(value) >= _SIZE_GUID:
                return str(uuid.UUID(bytes=bytes(value[1:_SIZE_GUID]))), value[_SIZE_GUID:]
            if value[0] == _MAGIC and len(value) >= _SIZE:
                return int.from_bytes(value[1:_SIZE], "big"), value[_SIZE:]
            raise CodecError(f"the header {name} holds no schema id: {value[:_SIZE_GUID].hex(' ')}")
    return None


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Which message of a Protobuf file a value is: the position on each level, their count in front.

    Example:
        >>> (write_indexes([0]).hex(), write_indexes([1, 0]).hex())
        ('00', '040200')
    """
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(map(_varint, (len(indexes), *indexes)))


def read_indexes(data: bytes, at: int) -> tuple[list[int], int]:
    """The indexes that stand at a position, and where they end.

    Raises:
        CodecError: they are cut off or too many.
    """
    count, at = _read_varint(data, at)
    if not 0 <= count <= _MOST_INDEXES:
        raise CodecError(f"{count} levels of nested messages; the value is no Protobuf record")
    indexes = []
    for _ in range(count):
        index, at = _read_varint(data, at)
        indexes.append(index)
    return indexes or [0], at


def _varint(number: int) -> bytes:
    """Zigzag, as the wire format has it; the numbers are never negative."""
    number <<= 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 64:
        if at >= len(data):
            raise CodecError("the value ends within its message indexes")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at
        shift += 7
    raise CodecError("a message index is longer than 64 bits")
