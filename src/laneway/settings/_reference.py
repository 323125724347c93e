"""The table of all settings for the documentation, made from the models."""

from __future__ import annotations

import re
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic_core import PydanticUndefined

from laneway.settings._cluster import ClusterSettings
from laneway.settings._introspect import table_of, walk
from laneway.settings._load import short_names
from laneway.settings._model import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic.fields import FieldInfo

__all__ = ["reference"]

_KINDS = {
    "bool": "true or false",
    "float": "number",
    "int": "number",
    "Path": "path",
    "Secret": "secret",
    "str": "text",
    "timedelta": "duration",
}


def reference() -> str:
    """Markdown: one row for each setting with kind, default, environment variable and meaning."""
    variables = {".".join(path): name for name, path in short_names().items()}
    defaults = _defaults()
    rows = ["| Setting | Kind | Default | Meaning |", "|---|---|---|---|"]
    for key, info in walk():
        if table_of(info) is not None:
            continue
        variable = f" Variable: `{variables[key]}`." if key in variables else ""
        kind = _kind(info.annotation, info.metadata)
        rows.append(f"| `{key}` | {kind} | {_default(key, info, defaults)} | {info.description}{variable} |")
    return "\n".join(rows)


def _kind(annotation: Any, marks: Sequence[object] = ()) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(parts[0], parts[1:])
    if "size" in marks:
        return "size"
    if origin is Literal:
        return " \\| ".join(str(choice) for choice in parts)
    if origin in {UnionType, Union}:
        return _kind(parts[0])
    if origin is tuple:
        return f"list of {_kind(parts[0])}"
    return "table" if origin is dict else _KINDS[annotation.__name__]


def _defaults() -> dict[str, Any]:
    """All defaults as the file would have them; entries with free names show one empty entry."""
    flat: dict[str, Any] = {}

    def put(prefix: str, values: dict[str, Any]) -> None:
        for key, value in values.items():
            if isinstance(value, dict) and value:
                put(f"{prefix}{key}.", value)
            else:
                flat[f"{prefix}{key}"] = value

    put("", Settings().dump())
    cluster = ClusterSettings(brokers=("127.0.0.1:9092",)).model_dump(mode="json", by_alias=True)
    put("clusters.<name>.", cluster)
    return flat


def _default(key: str, info: FieldInfo, defaults: dict[str, Any]) -> str:
    if info.default is PydanticUndefined and info.default_factory is None:
        return "required"
    value = defaults.get(key)
    if value is None or value in ([], {}):
        return "not set"
    text = {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    return f"`{re.sub('[|]', '', text)}`"
