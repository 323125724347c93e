"""The Avro schema that follows from a Python type."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect

from laneway.errors import DeclarationError

__all__ = ["schema_of"]

_PLAIN: dict[type, Any] = {
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "long",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BytesType: "bytes",
    inspect.DateTimeType: {"type": "long", "logicalType": "timestamp-micros"},
    inspect.DateType: {"type": "int", "logicalType": "date"},
    inspect.TimeType: {"type": "long", "logicalType": "time-micros"},
    inspect.UUIDType: {"type": "string", "logicalType": "uuid"},
}
_RECORDS = (inspect.DataclassType, inspect.StructType, inspect.TypedDictType)
_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)


def schema_of(type_: type) -> Any:
    """The schema of a dataclass, msgspec struct, TypedDict or plain type, with its defaults.

    Integers are long, floats double, times microseconds.

    Raises:
        DeclarationError: a field has a type that has no single Avro type.

    Example:
        >>> schema_of(list[int])
        {'type': 'array', 'items': 'long'}
    """
    if hasattr(type_, "model_fields"):
        raise DeclarationError(f"the Avro schema of the pydantic model {type_.__name__} is not known; give it schema=")
    try:
        found = inspect.type_info(type_)
    except TypeError as error:
        raise DeclarationError(f"no Avro schema follows from {type_!r}: {error}; give it schema=") from error
    return _schema(found, set(), getattr(type_, "__name__", str(type_)))


def _schema(found: inspect.Type, known: set[str], where: str) -> Any:
    plain = _PLAIN.get(type(found))
    if plain is not None:
        return plain
    if isinstance(found, inspect.UnionType):
        return [_schema(part, known, where) for part in sorted(found.types, key=_is_not_null)]
    if isinstance(found, _LISTS):
        return {"type": "array", "items": _schema(found.item_type, known, where)}
    if isinstance(found, inspect.DictType) and isinstance(found.key_type, inspect.StrType):
        return {"type": "map", "values": _schema(found.value_type, known, where)}
    if isinstance(found, inspect.EnumType):
        return _enum(found, known, where)
    if isinstance(found, _RECORDS):
        return _record(found, known)
    raise DeclarationError(
        f"{where}: {type(found).__name__.removesuffix('Type')} has no Avro type; give the codec schema="
    )


def _is_not_null(part: inspect.Type) -> bool:
    return not isinstance(part, inspect.NoneType)


def _enum(found: inspect.EnumType, known: set[str], where: str) -> Any:
    cls = found.cls
    values = [member.value for member in cls]
    if not all(isinstance(value, str) and value.isidentifier() for value in values):
        raise DeclarationError(f"{where}: the values of {cls.__name__} are no Avro symbols; give the codec schema=")
    if cls.__name__ in known:
        return cls.__name__
    known.add(cls.__name__)
    return {"type": "enum", "name": cls.__name__, "symbols": values}


def _record(found: Any, known: set[str]) -> Any:
    name = found.cls.__name__
    if name in known:
        return name
    known.add(name)
    fields = []
    for field in found.fields:
        entry = {"name": field.encode_name, "type": _schema(field.type, known, f"{name}.{field.name}")}
        default = _default(field)
        if default is not msgspec.NODEFAULT:
            entry["type"] = _default_first(entry["type"], default)
            entry["default"] = default
        fields.append(entry)
    return {"type": "record", "name": name, "fields": fields}


def _default(field: inspect.Field) -> Any:
    """The default as JSON; an empty list or map where each value gets one of its own."""
    if field.default_factory is not msgspec.NODEFAULT:
        found = field.default_factory() if field.default_factory in (list, dict, set) else msgspec.NODEFAULT
        return [] if found == set() else found
    if isinstance(field.default, (enum.Enum, dt.date, dt.time, UUID, bytes)):
        return field.default.value if isinstance(field.default, enum.Enum) else msgspec.NODEFAULT
    return field.default


def _default_first(type_: Any, default: Any) -> Any:
    """In a union the default belongs to the first type."""
    if not isinstance(type_, list) or (default is None) == (type_[0] == "null"):
        return type_
    return [*type_[1:], type_[0]] if type_[0] == "null" else type_
