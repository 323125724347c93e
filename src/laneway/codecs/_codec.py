"""The protocol every codec follows."""

from __future__ import annotations

from typing import Protocol, TypeVar

__all__ = ["Codec"]

V = TypeVar("V")


class Codec(Protocol[V]):
    """Turns a value into bytes and back. Tombstones never reach a codec.

    A codec travels to Spark's workers, so it must be picklable; both methods raise `CodecError` for what they refuse.
    """

    def encode(self, value: V) -> bytes:
        """The bytes of a value."""
        ...

    def decode(self, data: bytes) -> V:
        """The value of some bytes."""
        ...
