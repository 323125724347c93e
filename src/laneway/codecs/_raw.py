"""Bytes as they are, and text."""

from __future__ import annotations

from laneway.errors import CodecError

__all__ = ["Raw", "Text"]


class Raw:
    """Bytes as they are. Costs nothing: the pipeline does not even call it."""

    def encode(self, value: bytes) -> bytes:
        """The same bytes; anything else is refused rather than guessed at."""
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise CodecError(f"a raw topic takes bytes, not {type(value).__name__}; give the topic a codec")
        return bytes(value)

    def decode(self, data: bytes) -> bytes:
        """The same bytes."""
        return data

    def __eq__(self, other: object) -> bool:
        """All of them are alike."""
        return type(other) is type(self)

    def __hash__(self) -> int:
        """Equal codecs hash alike."""
        return hash(type(self))

    def __repr__(self) -> str:
        """As it is written."""
        return f"{type(self).__name__}()"


class Text(Raw):
    """Text in UTF-8."""

    def encode(self, value: str) -> bytes:  # type: ignore[override]  # same shape, other value type
        """UTF-8 of a text."""
        if not isinstance(value, str):
            raise CodecError(f"a text topic takes str, not {type(value).__name__}")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise CodecError(f"cannot be written as UTF-8 at character {error.start}") from error

    def decode(self, data: bytes) -> str:  # type: ignore[override]
        """Text of UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise CodecError(f"not UTF-8 at byte {error.start}") from error
