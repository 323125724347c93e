"""Protobuf, by a generated message class."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from laneway.codecs._framed import Framed
from laneway.codecs._registry import RegisteredSchema
from laneway.codecs._wire_format import read_indexes, write_indexes
from laneway.errors import CodecError, DeclarationError

if TYPE_CHECKING:
    from laneway.codecs._registry import SchemaRegistry

__all__ = ["Protobuf"]

V = TypeVar("V")


class Protobuf(Framed[V], Generic[V]):
    """Values of a message class that ``protoc`` has generated.

    With a registry each value carries the id of its schema and says which message of the file it is, as Confluent's own
    serializers write it. With ``schema_id`` the id is fixed. With neither it is the bare message.

    Args:
        message: the class.
        registry: knows the schemas.
        schema_id: a fixed id.
        subject: the name of the schema in the registry.
        register: whether to register the schema when the registry does not have it. Schemas that import others
            than Google's well-known types must be registered by other means.

    Example::

        Topic("orders", value=Protobuf(Order, registry=registry))
    """

    kind = "PROTOBUF"

    def __init__(
        self,
        message: type[V],
        *,
        registry: SchemaRegistry | None = None,
        schema_id: int | None = None,
        subject: str | None = None,
        register: bool = False,
    ) -> None:
        super().__init__(registry, schema_id, subject, register=register)
        self._message = cast("Any", message)
        if not (hasattr(self._message, "FromString") and hasattr(self._message, "DESCRIPTOR")):
            raise DeclarationError(f"{message!r} is no generated Protobuf message class")
        self._indexes = _indexes_of(self._message.DESCRIPTOR)
        self._head = write_indexes(self._indexes) if self.is_framed else b""

    def __repr__(self) -> str:
        """As in code."""
        return f"Protobuf({self._message.__name__})"

    def __eq__(self, other: object) -> bool:
        """Equal when message and registry are."""
        return isinstance(other, Protobuf) and (other._message, *other.frame) == (self._message, *self.frame)

    def __hash__(self) -> int:
        """Equal codecs hash alike."""
        return hash((Protobuf, self._message))

    def _write(self, value: V) -> bytes:
        from google.protobuf.message import EncodeError

        if not isinstance(value, self._message):
            raise CodecError(f"this topic takes {self._message.__name__}, not {type(value).__name__}")
        try:
            return self._head + bytes(value.SerializeToString())
        except EncodeError as error:
            raise CodecError(f"cannot write {self._message.__name__} as Protobuf: {error}") from error

    def _read(self, data: bytes, at: int) -> V:
        from google.protobuf.message import DecodeError

        if self._head:
            if data.startswith(self._head, at):
                at += len(self._head)
            else:
                at = self._checked(data, at)
        try:
            return self._message.FromString(data[at:])  # type: ignore[no-any-return]
        except DecodeError as error:
            raise CodecError(f"not a Protobuf {self._message.__name__}: {error}") from error

    def _checked(self, data: bytes, at: int) -> int:
        """Where the message begins, whose indexes are not written in the usual short form."""
        indexes, at = read_indexes(data, at)
        if indexes != self._indexes:
            raise CodecError(
                f"the value is message {indexes} of its file; {self._message.__name__} is message {self._indexes}"
            )
        return at

    def _schema(self) -> RegisteredSchema:
        file = self._message.DESCRIPTOR.file
        return RegisteredSchema(self.kind, base64.b64encode(file.serialized_pb).decode())


def _indexes_of(descriptor: Any) -> list[int]:
    """The position of a message in its file, on each level."""
    found: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        siblings = parent.nested_types if parent is not None else descriptor.file.message_types_by_name.values()
        found.append([each.full_name for each in siblings].index(descriptor.full_name))
        descriptor = parent
    return found[::-1]
