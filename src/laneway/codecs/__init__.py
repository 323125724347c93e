"""Bytes to values and back."""

from laneway.codecs._codec import Codec
from laneway.codecs._json import Json
from laneway.codecs._raw import Raw, Text

__all__ = ["Codec", "Json", "Raw", "Text"]
