"""The protocol every codec follows."""

from __future__ import annotations

from typing import Protocol, TypeVar

__all__ = ["Codec"]

V = TypeVar("V")


class Codec(Protocol[V]):
    """Encodes and decodes values. Tombstones never reach a codec.

    A codec is sent to Spark's workers, so it must be picklable. Both methods raise `CodecError` for invalid input.
    """

    def encode(self, value: V) -> bytes:
        """Encode a value."""

    def decode(self, data: bytes) -> V:
        """Decode bytes."""
