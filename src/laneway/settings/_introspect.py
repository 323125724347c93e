"""Reads names and types of settings from the models."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args, get_origin

from pydantic import BaseModel

from laneway.settings._model import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic.fields import FieldInfo

__all__ = ["fields", "fields_at", "is_table", "table_of", "walk"]


def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The settings of a model by the name that the file uses."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def table_of(info: FieldInfo) -> type[BaseModel] | None:
    """The model inside a setting: a table of settings, or the entries of a table of tables."""
    found = get_args(info.annotation)[-1] if get_origin(info.annotation) is dict else info.annotation
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def is_table(info: FieldInfo) -> bool:
    """Whether the setting has keys of its own."""
    return table_of(info) is not None or get_origin(info.annotation) is dict


def fields_at(path: Sequence[str | int]) -> dict[str, FieldInfo]:
    """The settings allowed at *path*; empty where names are free."""
    model: type[BaseModel] = Settings
    parts = iter(path)
    for part in parts:
        info = fields(model).get(str(part))
        below = table_of(info) if info else None
        if info is None or below is None:
            return {}
        if get_origin(info.annotation) is dict and next(parts, None) is None:
            return {}
        model = below
    return fields(model)


def walk(model: type[BaseModel] = Settings, above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every setting with its dotted name, scalars before tables, free names as ``<name>``."""
    items = sorted(fields(model).items(), key=lambda item: table_of(item[1]) is not None)
    for name, info in items:
        yield f"{above}{name}", info
        below = table_of(info)
        if below is not None:
            free = "<name>." if get_origin(info.annotation) is dict else ""
            yield from walk(below, f"{above}{name}.{free}")
