"""Values of records and messages: which codec, and what it needs of a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway.codecs import Framed, Raw

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway._declare.record import Record, Topic
    from laneway.codecs import Codec

__all__ = ["codec_of", "decoder_of"]


def decoder_of(codec: Codec[Any]) -> Callable[[Record[Any]], Any] | None:
    """What gives the value of a record; None where the value is the bytes."""
    if type(codec) is Raw:
        return None
    if isinstance(codec, Framed) and codec.reads_headers:
        return lambda record: codec.decode_with(record.raw, record.headers)  # type: ignore[arg-type]  # no tombstones
    return lambda record: codec.decode(record.raw)  # type: ignore[arg-type]  # as above


def codec_of(topic: Topic[Any], address: str) -> Codec[Any]:
    """The codec of a topic whose real name is in its address; schemas are registered under that name."""
    codec = topic.value
    return codec.for_topic(address.partition("@")[0]) if address != topic.name and isinstance(codec, Framed) else codec
