"""JSON, validated against a type while it is decoded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic

import msgspec
from typing_extensions import TypeVar

from laneway.codecs._framed import Framed
from laneway.codecs._registry import RegisteredSchema
from laneway.errors import CodecError

if TYPE_CHECKING:
    from laneway.codecs._registry import SchemaRegistry

__all__ = ["Json"]

V = TypeVar("V", default=Any)
_DRAFT = "https://json-schema.org/draft/2020-12/schema"  # registries tell by it that a text is a JSON schema


class Json(Framed[V], Generic[V]):
    """JSON of dataclasses, msgspec structs, TypedDicts, plain containers, or pydantic models.

    Args:
        type_: type of the values; bytes of another shape are undecodable. `Any` by default: plain JSON values.
        registry: knows the schemas; each value carries the id of its JSON schema, which follows from the type.
        schema_id: a fixed id in front of each value, without a registry.
        subject: the name of the schema in the registry.
        register: whether to register the schema when the registry does not have it.

    Example:
        >>> Json(dict).decode(b'{"a": 1}')
        {'a': 1}
    """

    kind = "JSON"

    def __init__(
        self,
        type_: type[V] = Any,  # type: ignore[assignment]  # plain JSON values
        *,
        registry: SchemaRegistry | None = None,
        schema_id: int | None = None,
        subject: str | None = None,
        register: bool = False,
    ) -> None:
        super().__init__(registry, schema_id, subject, register=register)
        self.type: Any = type_
        # pydantic models decode themselves; msgspec decodes everything else, because it is faster.
        self._is_pydantic = hasattr(type_, "model_validate_json")
        self._prepare()

    def encode(self, value: V) -> bytes:
        """Encode a value as JSON."""
        return super().encode(value) if self.is_framed else self._write(value)

    def decode(self, data: bytes) -> V:
        """Decode JSON."""
        return super().decode(data) if self.is_framed else self._read(data, 0)

    def _prepare(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder = None if self._is_pydantic else msgspec.json.Decoder(self.type)

    def _write(self, value: V) -> bytes:
        try:
            if self._is_pydantic:
                return value.model_dump_json().encode()  # type: ignore[attr-defined,no-any-return]
            return self._encoder.encode(value)
        except (TypeError, AttributeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise CodecError(f"cannot write {type(value).__name__} as JSON: {error}") from error

    def _read(self, data: bytes, at: int) -> V:
        data = data[at:] if at else data
        try:
            if self._decoder is None:
                return self.type.model_validate_json(data)  # type: ignore[no-any-return]
            return self._decoder.decode(data)  # type: ignore[no-any-return]
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise CodecError(f"not the expected JSON: {error}") from error

    def _schema(self) -> RegisteredSchema:
        try:
            found = self.type.model_json_schema() if self._is_pydantic else msgspec.json.schema(self.type)
        except (TypeError, ValueError) as error:
            raise CodecError(f"no JSON schema follows from {self.type!r}: {error}") from error
        return RegisteredSchema(self.kind, json.dumps({"$schema": _DRAFT, **found}))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what was declared; coders cannot be."""
        return super().__getstate__() | {"_encoder": None, "_decoder": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the coders again."""
        self.__dict__ |= state
        self._prepare()

    def __eq__(self, other: object) -> bool:
        """Equal when the types are equal."""
        return isinstance(other, Json) and (other.type, *other.frame) == (self.type, *self.frame)

    def __hash__(self) -> int:
        """Equal codecs hash alike."""
        return hash((Json, self.type))

    def __repr__(self) -> str:
        """As in code."""
        return f"Json({getattr(self.type, '__name__', self.type)})"
