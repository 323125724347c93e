"""JSON, validated against a type while it is decoded."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

import msgspec

from laneway.errors import CodecError

__all__ = ["Json"]

V = TypeVar("V")


class Json(Generic[V]):
    """JSON of dataclasses, msgspec structs, TypedDicts, plain containers, or pydantic models.

    Args:
        type_: type of the values; bytes of another shape are undecodable. `Any` by default: plain JSON values.

    Example:
        >>> Json(dict).decode(b'{"a": 1}')
        {'a': 1}
    """

    @overload
    def __init__(self, type_: type[V]) -> None: ...
    @overload
    def __init__(self: Json[Any]) -> None: ...
    def __init__(self, type_: Any = Any) -> None:
        self.type: Any = type_
        self._encoder = msgspec.json.Encoder()
        # pydantic models decode themselves; msgspec decodes everything else, because it is faster.
        self._is_pydantic = hasattr(type_, "model_validate_json")
        self._decoder = None if self._is_pydantic else msgspec.json.Decoder(type_)

    def encode(self, value: V) -> bytes:
        """Encode a value as JSON."""
        try:
            if self._is_pydantic:
                return value.model_dump_json().encode()  # type: ignore[attr-defined,no-any-return]
            return self._encoder.encode(value)
        except (TypeError, AttributeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise CodecError(f"cannot write {type(value).__name__} as JSON: {error}") from error

    def decode(self, data: bytes) -> V:
        """Decode JSON."""
        try:
            if self._decoder is None:
                return self.type.model_validate_json(data)  # type: ignore[no-any-return]
            return self._decoder.decode(data)  # type: ignore[no-any-return]
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise CodecError(f"not the expected JSON: {error}") from error

    def __reduce__(self) -> tuple[type[Json[V]], tuple[Any]]:
        """Pickle only the type; the coders are recreated."""
        return (type(self), (self.type,))

    def __eq__(self, other: object) -> bool:
        """Equal when the types are equal."""
        return isinstance(other, Json) and other.type == self.type

    def __hash__(self) -> int:
        """Equal codecs hash alike."""
        return hash((Json, self.type))

    def __repr__(self) -> str:
        """As in code."""
        return f"Json({getattr(self.type, '__name__', self.type)})"
