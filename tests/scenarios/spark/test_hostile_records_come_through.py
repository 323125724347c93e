"""Nulls, empty and binary keys, values and headers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from support.doors import ERROR_HEADERS

if TYPE_CHECKING:
    from laneway import Record
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

KEYS = (None, b"", b"\x00", b"\xff\xfe not text", "ключ".encode(), b"k" * 65_536, b"plain")
VALUES = (None, b"", b"\x00\x01\xff", b"v" * 65_536, b"{}", b"text")
HEADERS = (
    [],
    [("a", b"1"), ("a", b"2"), ("b", None), ("a", b"1")],
    [("binary", bytes(range(256))), ("empty", b""), ("null", None)],
    [("", b"no name"), ("名", b"\xff")],
    [("laneway-attempts", b"-1"), ("laneway-origin-offset", b"NaN"), ("own", b"kept")],
)
Shape = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def _shape(record: Record[Any]) -> Shape:
    headers = tuple((name, value) for name, value in record.headers if name not in ERROR_HEADERS)
    return record.key, record.raw, headers


def _produce(scene: Scene, *, prefix: bytes = b"") -> None:
    chance = random.Random(20)
    rows = [(key, value, headers) for key in KEYS for value in VALUES for headers in HEADERS]
    for key, value, headers in chance.sample(rows, 200):
        told = prefix + (value or b"") if prefix else value
        scene.producer.produce(scene.topic, told, key, headers=headers or None)
    assert scene.producer.flush(60) == 0


def test_to_an_output_topic(scene: Scene, spark: object) -> None:
    """A record that a handler passes on arrives byte by byte the same, with its headers in order and null kept null."""
    output = f"{scene.topic}.copy"
    scene.admin.create(output, 3)
    _produce(scene)
    scene.once(output=output)
    assert _bag(scene, output, strip=False) == _bag(scene, scene.topic, strip=False)
    assert scene.verdict().is_clean


def test_to_the_error_topic(scene: Scene, spark: object) -> None:
    """A parked copy has the record's key, value, timestamp and headers, and ours once, whatever came in."""
    _produce(scene, prefix=b"poison")
    scene.once()
    copies = scene.read(scene.error_topic)
    assert _bag(scene, scene.error_topic, strip=True) == _bag(scene, scene.topic, strip=True)
    for copy in copies:
        names = [name for name, _value in copy.headers if name in ERROR_HEADERS]
        assert sorted(names) == sorted(ERROR_HEADERS)
    origins = {(record.partition, record.offset): record for record in scene.read(scene.topic)}
    for place, copy in zip(_places(copies), copies, strict=True):
        origin = origins[place]
        assert (copy.timestamp, *_shape(copy)) == (origin.timestamp, *_shape(origin))
    assert scene.parked() == sorted(origins)


def _places(copies: list[Record[Any]]) -> list[tuple[int, int]]:
    return [
        (int(copy.header("laneway-origin-partition") or b""), int(copy.header("laneway-origin-offset") or b""))
        for copy in copies
    ]


def _bag(scene: Scene, topic: str, *, strip: bool) -> list[str]:
    """Everything in a topic as sorted texts; those tell None and b'' apart."""
    return sorted(
        repr(_shape(record) if strip else (record.key, record.raw, tuple(record.headers)))
        for record in scene.read(topic)
    )
