"""Framed: what codecs have in common whose values carry the id of a schema."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from laneway.codecs._wire_format import MOST_ID, framed_id, prefix_of, schema_id_in
from laneway.errors import CodecError, DeclarationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway.codecs._registry import RegisteredSchema, SchemaRegistry
    from laneway.codecs._wire_format import Part, SchemaId

__all__ = ["Framed"]

V = TypeVar("V")
_START = 5  # the value begins behind a zero byte and four bytes of id


class Framed(ABC, Generic[V]):
    """A codec that reads and writes the Confluent wire format, if it is given a registry or a fixed id.

    Args:
        registry: knows the schemas.
        schema_id: a fixed id: written in front of each value, and required of each value that is read.
        subject: the name of the schema in the registry; by default the topic's, with ``-value`` or ``-key``.
        register: whether to register the schema when the subject does not have it.
    """

    kind: str

    def __init__(
        self,
        registry: SchemaRegistry | None,
        schema_id: int | None,
        subject: str | None,
        *,
        register: bool,
    ) -> None:
        if registry is not None and schema_id is not None:
            raise DeclarationError("give a codec a registry or a fixed schema_id, not both")
        if schema_id is not None and not 0 <= schema_id <= MOST_ID:
            raise DeclarationError(f"schema_id={schema_id}; an id is a number from 0 to {MOST_ID}")
        if register and registry is None:
            raise DeclarationError("register=True needs a registry")
        self._registry = registry
        self._schema_id = schema_id
        self._subject = subject
        self._register = register
        self._part: Part = "value"
        self._topic = ""
        self._prefix = b"" if schema_id is None else prefix_of(schema_id)
        self._readers: dict[SchemaId, Callable[[bytes, int], V]] = {}
        self._bound: dict[tuple[str, Part], Self] = {}

    @property
    def is_framed(self) -> bool:
        """Whether values carry the id of a schema."""
        return self._registry is not None or self._schema_id is not None

    @property
    def reads_headers(self) -> bool:
        """Whether the schema's id may stand in a header: then records are decoded by `decode_with`."""
        return self._registry is not None

    @property
    def frame(self) -> tuple[Any, ...]:
        """What decides about the frame of values; codecs that differ in it are not equal."""
        return (self._registry, self._schema_id, self._subject, self._register)

    def for_topic(self, topic: str, part: Part = "value") -> Self:
        """The codec as it is used for a topic's values or keys, from which the subject has its name."""
        if self._registry is None or (topic, part) == (self._topic, self._part):
            return self
        bound = self._bound.get((topic, part))
        if bound is None:
            bound = self._bound[topic, part] = copy.copy(self)
            bound._topic, bound._part, bound._prefix = topic, part, b""  # noqa: SLF001 - another of us
        return bound

    def encode(self, value: V) -> bytes:
        """Encode a value, behind the id of its schema."""
        if self._registry is not None and not self._prefix:
            self._prefix = self._found_prefix(self._registry)
        return self._prefix + self._write(value)

    def decode(self, data: bytes) -> V:
        """Decode a value by the schema whose id stands in front of it."""
        if self._schema_id is not None and (found := framed_id(data)) != self._schema_id:
            raise CodecError(f"the value was written with schema {found}; this topic has schema {self._schema_id}")
        if self._registry is None:
            return self._read(data, len(self._prefix))
        schema_id = framed_id(data)
        reader = self._readers.get(schema_id) or self._reader_of(schema_id)
        return reader(data, _START)

    def decode_with(self, data: bytes, headers: Sequence[tuple[str, bytes | None]]) -> V:
        """As `decode`, for a record whose headers may hold the id of its schema."""
        found = schema_id_in(headers, self._part) if headers and self._registry is not None else None
        if found is None:
            return self.decode(data)
        schema_id, rest = found
        reader = self._readers.get(schema_id) or self._reader_of(schema_id)
        return reader(rest + data, 0) if rest else reader(data, 0)

    @abstractmethod
    def _write(self, value: V) -> bytes:
        """The value's bytes, without the id. Raises `CodecError`."""

    @abstractmethod
    def _read(self, data: bytes, at: int) -> V:
        """The value that begins at a position, by the codec's own schema. Raises `CodecError`."""

    @abstractmethod
    def _schema(self) -> RegisteredSchema:
        """The codec's own schema, for the registry. Raises `CodecError` when it has none."""

    def _reader(self, schema: RegisteredSchema) -> Callable[[bytes, int], V]:
        """What reads values that were written with a schema; by default the codec's own one reads them."""
        del schema
        return self._read

    def _reader_of(self, schema_id: SchemaId) -> Callable[[bytes, int], V]:
        assert self._registry is not None  # noqa: S101 - for the type checker: only then it is called
        schema = self._registry.schema(schema_id)
        if schema.kind != self.kind:
            raise CodecError(f"schema {schema_id} is {schema.kind}; the codec of this topic is {self.kind}")
        reader = self._readers[schema_id] = self._reader(schema)
        return reader

    def _found_prefix(self, registry: SchemaRegistry) -> bytes:
        subject = self._subject or (self._topic and f"{self._topic}-{self._part}")
        if not subject:
            raise CodecError(
                "the codec belongs to no topic, so the subject of its schema is not known; give it subject="
            )
        schema_id = registry.id_of(subject, self._schema(), register=self._register)
        self._readers.setdefault(schema_id, self._read)
        return prefix_of(schema_id)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what was declared; what was learned is learned again."""
        learned = {"_readers": {}, "_bound": {}, "_prefix": b"" if self._schema_id is None else self._prefix}
        return self.__dict__ | learned
