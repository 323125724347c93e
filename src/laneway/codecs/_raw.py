"""Codecs of bytes and text."""

from __future__ import annotations

from laneway.errors import CodecError

__all__ = ["Raw", "Text"]


class Raw:
    """Bytes, unchanged. Costs nothing, because it is never called."""

    def encode(self, value: bytes) -> bytes:
        """The same bytes; refuses anything else."""
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise CodecError(f"a raw topic takes bytes, not {type(value).__name__}; give the topic a codec")
        return bytes(value)

    def decode(self, data: bytes) -> bytes:
        """The same bytes."""
        return data

    def __eq__(self, other: object) -> bool:
        """All instances are equal."""
        return type(other) is type(self)

    def __hash__(self) -> int:
        """Equal codecs hash alike."""
        return hash(type(self))

    def __repr__(self) -> str:
        """As in code."""
        return f"{type(self).__name__}()"


class Text(Raw):
    """Text in UTF-8."""

    def encode(self, value: str) -> bytes:  # type: ignore[override]  # same shape, other value type
        """Encode as UTF-8."""
        if not isinstance(value, str):
            raise CodecError(f"a text topic takes str, not {type(value).__name__}")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise CodecError(f"cannot be written as UTF-8 at character {error.start}") from error

    def decode(self, data: bytes) -> str:  # type: ignore[override]
        """Decode UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise CodecError(f"not UTF-8 at byte {error.start}") from error
