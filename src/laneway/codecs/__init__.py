"""Bytes to values and back."""

from laneway.codecs._avro import Avro
from laneway.codecs._codec import Codec
from laneway.codecs._framed import Framed
from laneway.codecs._json import Json
from laneway.codecs._protobuf import Protobuf
from laneway.codecs._raw import Raw, Text
from laneway.codecs._registry import SchemaRegistry

__all__ = ["Avro", "Codec", "Framed", "Json", "Protobuf", "Raw", "SchemaRegistry", "Text"]
