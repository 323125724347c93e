"""Avro, by a schema of your own, or by the one that a type has."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import struct
import uuid
from io import BytesIO
from typing import TYPE_CHECKING, Any, Generic

import msgspec
from typing_extensions import TypeVar

from laneway.codecs._avro_types import schema_of
from laneway.codecs._framed import Framed
from laneway.codecs._registry import RegisteredSchema
from laneway.errors import CodecError, DeclarationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from laneway.codecs._registry import SchemaRegistry

__all__ = ["Avro"]

V = TypeVar("V", default=Any)

_UNREADABLE = (EOFError, IndexError, ValueError, TypeError, OverflowError, struct.error, RecursionError, MemoryError)
_UNWRITABLE = (*_UNREADABLE, AttributeError, KeyError, decimal.DecimalException)
_AS_THEY_ARE = (bytes, bytearray, dt.datetime, dt.date, dt.time, decimal.Decimal, uuid.UUID)


class Avro(Framed[V], Generic[V]):
    r"""Avro binary values: of a type (dataclass, msgspec struct, TypedDict), or dicts of a schema.

    With a registry each value carries the id of its schema, and is read by the schema it was written with. With
    ``schema_id`` it carries a fixed id. With neither it is the bare Avro value, whose reader must know the schema.

    Args:
        type_: the type of the values, whose schema follows from its fields; or a schema, as text or as a dict.
        schema: the schema, if it does not follow from the type.
        registry: knows the schemas.
        schema_id: a fixed id.
        subject: the name of the schema in the registry.
        register: whether to register the schema when the registry does not have it.

    Example:
        >>> Avro({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}).encode({"id": 3})
        b'\x06'
    """

    kind = "AVRO"

    def __init__(
        self,
        type_: type[V] | str | Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        schema: str | Mapping[str, Any] | None = None,
        registry: SchemaRegistry | None = None,
        schema_id: int | None = None,
        subject: str | None = None,
        register: bool = False,
    ) -> None:
        super().__init__(registry, schema_id, subject, register=register)
        self._type: Any = type_ if isinstance(type_, type) else None
        found: Any = type_ if self._type is None else schema
        if found is None and self._type is not None:
            found = schema_of(self._type)
        if found is None and registry is None:
            raise DeclarationError("Avro needs a type, a schema, or a registry to read schemas from")
        self._text = _text_of(found)
        self._is_pydantic = hasattr(self._type, "model_validate")
        self._parse()

    def __repr__(self) -> str:
        """As in code, without the schema's text."""
        what = self._type.__name__ if self._type else (json.loads(self._text) or {}) if self._text else ""
        name = what.get("name", "…") if isinstance(what, dict) else what
        return f"Avro({name})"

    def __eq__(self, other: object) -> bool:
        """Equal when type, schema and registry are."""
        return isinstance(other, Avro) and (other._type, other._text, *other.frame) == (
            self._type,
            self._text,
            *self.frame,
        )

    def __hash__(self) -> int:
        """Equal codecs hash alike."""
        return hash((Avro, self._type, self._text))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the schema as text."""
        return super().__getstate__() | {"_parsed": None, "_own": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Parse the schema again."""
        self.__dict__ |= state
        self._parse()

    def _parse(self) -> None:
        self._parsed = _parsed(self._text) if self._text else None
        self._own = self._made_reader(self._parsed, None) if self._parsed else None

    def _write(self, value: V) -> bytes:
        if self._parsed is None:
            raise CodecError("this Avro codec has no schema of its own, so it only reads; give it a type or a schema")
        buffer = BytesIO()
        try:
            _fastavro().schemaless_writer(buffer, self._parsed, self._plain(value))
        except _UNWRITABLE as error:
            raise CodecError(f"cannot write {type(value).__name__} as Avro: {error}") from error
        return buffer.getvalue()

    def _plain(self, value: Any) -> Any:
        if self._is_pydantic:
            return value.model_dump()
        return value if self._type is None else msgspec.to_builtins(value, builtin_types=_AS_THEY_ARE)

    def _schema(self) -> RegisteredSchema:
        if self._parsed is None:
            raise CodecError("this Avro codec has no schema of its own, so it only reads; give it a type or a schema")
        return RegisteredSchema(self.kind, self._text)

    def _read(self, data: bytes, at: int) -> V:
        if self._own is None:
            raise CodecError("the value carries no schema id, and this Avro codec has no schema of its own")
        return self._own(data, at)

    def _reader(self, schema: RegisteredSchema) -> Callable[[bytes, int], V]:
        written = _parsed(schema.text, schema.references)
        is_same = self._parsed is None or _meaning(written) == _meaning(self._parsed)
        return self._made_reader(written, None if is_same else self._parsed)

    def _made_reader(self, written: Any, wanted: Any) -> Callable[[bytes, int], V]:
        read, type_, is_pydantic = _fastavro().schemaless_reader, self._type, self._is_pydantic
        unreadable = (*_UNREADABLE, _fastavro().schema.SchemaParseException, _fastavro().read.SchemaResolutionError)

        def reader(data: bytes, at: int) -> V:
            buffer = BytesIO(data)
            buffer.seek(at)
            try:
                value: Any = read(buffer, written, wanted)
                if buffer.tell() != len(data):
                    raise CodecError(
                        f"{len(data) - buffer.tell()} bytes are left behind the value; another schema wrote it"
                    )
                if type_ is not None:
                    value = type_.model_validate(value) if is_pydantic else msgspec.convert(value, type_)
            except unreadable as error:
                raise CodecError(f"not the expected Avro: {error or type(error).__name__}") from error
            return value  # type: ignore[no-any-return]

        return reader


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise DeclarationError("Avro needs the package fastavro: pip install 'laneway[avro]'") from error
    return fastavro


def _text_of(schema: Any) -> str:
    if schema is None:
        return ""
    if not isinstance(schema, str):
        return json.dumps(schema)
    try:
        json.loads(schema)
    except ValueError:
        return json.dumps(schema)  # the name of a primitive type
    return schema


def _parsed(text: str, references: tuple[RegisteredSchema, ...] = ()) -> Any:
    """A schema as fastavro wants it, with the schemas that it refers to."""
    fastavro = _fastavro()
    names: dict[str, Any] = {}
    try:
        for reference in references:
            _parse_into(names, reference)
        return fastavro.parse_schema(json.loads(text), names)
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        ValueError,
        KeyError,
        TypeError,
    ) as error:
        raise DeclarationError(f"not an Avro schema: {error}") from error


def _parse_into(names: dict[str, Any], schema: RegisteredSchema) -> None:
    for reference in schema.references:
        _parse_into(names, reference)
    _fastavro().parse_schema(json.loads(schema.text), names)


def _meaning(schema: Any) -> Any:
    """A parsed schema without what makes no difference for a value."""
    if isinstance(schema, dict):
        return {
            name: _meaning(value)
            for name, value in schema.items()
            if name not in ("doc", "aliases") and not name.startswith("__")
        }
    return [_meaning(value) for value in schema] if isinstance(schema, list) else schema
