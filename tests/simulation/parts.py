"""What the schedules have in common."""

from __future__ import annotations

from laneway.errors import CodecError

__all__ = ["Codec", "Flaw", "Odd"]


class Flaw(AssertionError):  # noqa: N818 - what it is called everywhere here
    """A promise was broken."""


class Odd(ValueError):  # noqa: N818 - as above
    """What a codec raises that does not keep to `CodecError`."""


class Codec:
    """Refuses values that begin with an exclamation mark, and those with a question mark in a way of its own."""

    def encode(self, value):
        return value

    def decode(self, data):
        if data.startswith(b"!"):
            raise CodecError("planted")
        if data.startswith(b"?"):
            raise Odd("planted")
        return data
