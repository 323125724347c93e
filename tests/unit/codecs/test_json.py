"""JSON checked against a type."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TypedDict

import msgspec
import pydantic
import pytest

from laneway import Json
from laneway.errors import CodecError


@dataclass
class Plain:
    id: int
    name: str = ""


class Struct(msgspec.Struct):
    id: int
    name: str = ""


class Model(pydantic.BaseModel):
    id: int
    name: str = ""


class Typed(TypedDict):
    id: int
    name: str


VALUES = [
    (Plain, Plain(1, "é")),
    (Struct, Struct(1, "é")),
    (Model, Model(id=1, name="é")),
    (Typed, {"id": 1, "name": "é"}),
    (dict[str, int], {"a": 1}),
    (list[Plain], [Plain(1), Plain(2)]),
]


@pytest.mark.parametrize(("type_", "value"), VALUES)
def test_a_value_survives(type_, value):
    """Decoding what was encoded gives an equal value of the same type."""
    codec = Json(type_)
    back = codec.decode(codec.encode(value))

    assert value == back
    assert type(value) is type(back)


@pytest.mark.parametrize("type_", [Plain, Struct, Model, Typed])
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"name": "x"}', b'{"id": "one", "name": ""}', b"\xff", b"null"])
def test_other_bytes_are_undecodable(type_, data):
    """What is not JSON, or is of another shape, is refused with a CodecError."""
    with pytest.raises(CodecError, match="not the expected JSON"):
        Json(type_).decode(data)


def test_deep_nesting_is_undecodable():
    """A value made to exhaust the stack costs only its record."""
    with pytest.raises(CodecError):
        Json().decode(b"[" * 100_000)


RECURSIVE: list = []
RECURSIVE.append(RECURSIVE)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (None, object()),
        (None, "\ud800"),
        (None, RECURSIVE),
        (Model, {"id": 1}),
        (Model, Model.model_construct(name="\ud800")),
    ],
)
def test_a_value_that_is_no_json_is_refused(type_, value):
    """Whatever the library below raises, the error is a CodecError."""
    with pytest.raises(CodecError, match="cannot write"):
        Json(type_).encode(value)


def test_any_json_is_read_without_a_type():
    """The default takes whatever JSON gives."""
    assert Json().decode(b'[1, {"a": null}]') == [1, {"a": None}]


@pytest.mark.parametrize(("type_", "value"), VALUES)
def test_a_codec_travels(type_, value):
    """A pickled codec is equal, hashes alike and still works."""
    codec = Json(type_)
    back = pickle.loads(pickle.dumps(codec))  # noqa: S301 - our own bytes

    assert codec == back
    assert hash(codec) == hash(back)
    assert value == back.decode(codec.encode(value))


def test_codecs_differ_by_type():
    """Two codecs are equal only when they read the same type."""
    assert Json(Plain) != Json(Struct)
    assert Json(Plain) != "Json(Plain)"
    assert repr(Json(Plain)) == "Json(Plain)"
