"""Masked text: passwords, client secrets, key passphrases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import core_schema

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

__all__ = ["MASK", "Secret", "SecretText"]

MASK = "••••"


class SecretText(str):
    """A Spark option whose text came from ``{env: NAME}`` or ``{file: path}``, so it is secret."""

    __slots__ = ()


class Secret:
    """Holds a text and shows only a mask; `reveal` gives the text to the client that needs it.

    Pickling keeps the text, because a Spark executor has to log in too.

    >>> str(Secret("hunter2")), Secret("hunter2").reveal()
    ('••••', 'hunter2')
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The unmasked text; call it only to create a client."""
        return self._text

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return (Secret, (self._text,))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """A `Secret` stays a `Secret` in the model and becomes the mask in every dump."""
        return core_schema.is_instance_schema(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(lambda _secret: MASK)
        )
