"""Bytes as they are, and text."""

from __future__ import annotations

import pickle

import pytest

from laneway import Raw, Text
from laneway.errors import CodecError


@pytest.mark.parametrize("value", [b"", b"\x00\xff", bytearray(b"a"), memoryview(b"a")])
def test_raw_keeps_bytes(value):
    """Anything that is bytes comes out as the same bytes."""
    assert bytes(value) == Raw().decode(Raw().encode(value))


@pytest.mark.parametrize("value", ["text", 5, ["b"]])
def test_raw_refuses_what_is_not_bytes(value):
    """A text is not guessed at; the message says what to do."""
    with pytest.raises(CodecError, match=r"takes bytes, not .*; give the topic a codec"):
        Raw().encode(value)


def test_text_is_utf8():
    """A text survives; an empty one too."""
    assert Text().decode(Text().encode("é")) == "é"
    assert Text().encode("") == b""


def test_text_refuses_what_is_not_text():
    """Bytes that are not UTF-8, values that are not str and texts that are no Unicode are CodecErrors."""
    with pytest.raises(CodecError, match="not UTF-8 at byte 1"):
        Text().decode(b"a\xff")
    with pytest.raises(CodecError, match="takes str, not bytes"):
        Text().encode(b"a")
    with pytest.raises(CodecError, match="at character 1"):
        Text().encode("a\ud800")


@pytest.mark.parametrize("codec", [Raw(), Text()])
def test_codecs_without_state_are_alike(codec):
    """Each equals its pickled self and no other kind."""
    assert codec == pickle.loads(pickle.dumps(codec))  # noqa: S301 - our own bytes
    assert hash(codec) == hash(type(codec)())
    assert Raw() != Text()
    assert repr(codec) == f"{type(codec).__name__}()"
