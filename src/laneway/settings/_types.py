"""Types of setting values, each with errors that say what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from laneway._declare.units import as_duration, as_size, in_words
from laneway.settings._located_values import shown
from laneway.settings._secret import Secret, SecretText

__all__ = [
    "AcksWord",
    "Brokers",
    "Context",
    "DurationType",
    "Durations",
    "FilePath",
    "FilePaths",
    "Hidden",
    "Name",
    "Option",
    "SizeType",
    "SwitchType",
    "Text",
    "TopicName",
    "Upper",
    "Word",
    "as_conf",
    "byte_size",
    "duration",
    "integer",
    "resolve",
    "wrong",
]

_MAX_SECRET = 64 * 1024
_MOST_STEPS = 20
Parsed = TypeVar("Parsed", int, timedelta)


@dataclass(frozen=True, slots=True)
class Context:
    """Context of validators: the environment for secrets, and the folder that paths are relative to."""

    environ: Mapping[str, str] = field(default_factory=dict)
    directory: Path = field(default_factory=Path)


def wrong(message: str, fix: str) -> PydanticCustomError:
    """The error of a validator; both parts end up in a `Problem`."""
    return PydanticCustomError("laneway", "{message}", {"message": message, "fix": fix})


def _text(value: object) -> str:
    if isinstance(value, str):
        if not value or not value.isprintable():
            raise wrong("the text is empty or has control characters", "write plain text")
        return value
    if isinstance(value, (bool, int, float)):
        kind = "a boolean" if isinstance(value, bool) else "a number"
        raise wrong(f"{shown(value)} is {kind} in YAML, but text is expected", f'put it in quotes: "{shown(value)}"')
    raise wrong(f"{shown(value)} is given, but text is expected", "write one plain text")


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    meant = {"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}
    raise wrong(f"{shown(value)} is not true or false", f"write {meant.get(str(value)[:5].lower(), 'true or false')}")


def integer(low: int, high: int = 2**31 - 1) -> BeforeValidator:
    """A whole number between two bounds, both allowed; text from the environment is read as a number."""

    def check(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]{1,18}", value.strip()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong(
                f"{shown(value)} is not a whole number", f"write a number of at least {low}, such as {max(low, 1)}"
            )
        return _within(value, low, high, value, f"write a number from {low} to {high}")

    return BeforeValidator(check)


def duration(low: str = "0s", high: str = "7d") -> BeforeValidator:
    """A duration with a unit between two bounds, both allowed."""
    least, most = as_duration(low), as_duration(high)

    def check(value: object) -> timedelta:
        parsed = _measured(as_duration, value, "duration", "write for example '100ms', '5s' or '1m30s'")
        return _within(parsed, least, most, value, f"write a duration from {low} to {high}")

    return BeforeValidator(check)


def byte_size(low: str = "1b", high: str = "1GiB") -> BeforeValidator:
    """A size in bytes between two bounds, both allowed."""
    least, most = as_size(low), as_size(high)

    def check(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
            value = int(value)
        parsed = _measured(as_size, value, "size", "write for example '64KiB', '16MiB' or a number of bytes")
        return _within(parsed, least, most, value, f"write a size from {low} to {high}")

    return BeforeValidator(check)


def _within(parsed: Parsed, least: Parsed, most: Parsed, value: object, fix: str) -> Parsed:
    if not least <= parsed <= most:
        raise wrong(f"{shown(value)} is out of range", fix)
    return parsed


def _measured(read: Callable[[object], Parsed], value: object, kind: str, forms: str) -> Parsed:
    if isinstance(value, (dict, list)) or (isinstance(value, str) and len(value) > 40):
        raise wrong(f"{shown(value)} is not a {kind}", forms)
    try:
        return read(value)
    except ValueError as error:
        message, _, fix = str(error).partition("; ")
        raise wrong(message, fix) from None
    except OverflowError:
        raise wrong(f"{shown(value)} is out of range", forms) from None


def _in_bytes(count: int) -> str | int:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count and count % factor == 0:
            return f"{count // factor}{unit}"
    return count


def _listed(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, (list, tuple)):
        return tuple(value)
    raise wrong(f"{shown(value)} is given, but a list is expected", "write [first, second] or 'first,second'")


def _broker(value: object) -> str:
    text = _text(value)
    if "@" in text or "://" in text:
        # Not shown: the text before the @ may be a password.
        raise wrong("a broker is only host and port", "write 'host:9092'; log in with the 'security' settings")
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise wrong(f"{shown(text)} has no port", f"write '{text[:60].rstrip(':')}:9092'")
    if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]", host) or not 0 < int(port[:6]) < 65536:
        raise wrong(f"{shown(text)} is not a host and a port", "write 'host:9092', or '[::1]:9092' for IPv6")
    return text


def _some(brokers: tuple[str, ...]) -> tuple[str, ...]:
    if not brokers:
        raise wrong("there is no broker in the list", "write at least one 'host:9092'")
    return brokers


def _few(delays: tuple[timedelta, ...]) -> tuple[timedelta, ...]:
    if len(delays) > _MOST_STEPS:
        raise wrong(f"{len(delays)} steps are given, each of which is a topic", f"write at most {_MOST_STEPS}")
    return delays


def _name(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", text):
        raise wrong(f"{shown(text)} is not a name", "use letters, digits, '_' and '-'")
    return text


def _topic_name(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text) or text in {".", ".."}:
        raise wrong(f"{shown(text)} is not a topic name", "use up to 249 letters, digits, '.', '_' and '-'")
    return text


def resolve(value: object, info: ValidationInfo) -> Secret:
    """A secret from ``{env: NAME}``, ``{file: path}`` or a literal text; no error ever shows the value."""
    if isinstance(value, Secret):
        return value
    if isinstance(value, str) and value:
        return Secret(value)
    forms = "write {env: NAME} or {file: path}"
    if not isinstance(value, Mapping) or len(value) != 1 or not isinstance(next(iter(value.values())), str):
        raise wrong("a secret is a text, {env: NAME} or {file: path}", forms)
    context = info.context if isinstance(info.context, Context) else Context()
    [(kind, place)] = value.items()
    if kind == "env":
        found = context.environ.get(place, "")
        if not found:
            raise wrong(f"the environment variable {shown(place)} is not set", "set it before the start")
        return Secret(found)
    if kind != "file":
        raise wrong("this is not a place for a secret", forms)
    return Secret(_from_file(context.directory / place, place))


def _from_file(path: Path, place: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_SECRET + 1)
        text = data.decode().rstrip("\r\n")
    except (OSError, ValueError):
        raise wrong(f"the secret file {shown(place)} cannot be read", "give a readable text file") from None
    if not text or len(data) > _MAX_SECRET:
        raise wrong(f"the secret file {shown(place)} is empty or too large", "put only the secret in it")
    return text


def _file_path(value: object, info: ValidationInfo) -> Path:
    context = info.context if isinstance(info.context, Context) else Context()
    return context.directory / (value if isinstance(value, Path) else _text(value))


def _without_login(address: str) -> str:
    if re.search(r"://[^/]*@", address):
        raise wrong("a URL with credentials would be shown", "put the credentials into their own settings")
    return address


def _option(value: object) -> str | int | float | bool:
    if isinstance(value, (str, int, float)):
        return value
    raise wrong(f"{shown(value)} is given, but an option is one value", "write a text, a number, true or false")


def as_conf(value: object, info: ValidationInfo) -> str:
    """A Spark option as text, the only form Spark knows; secrets may come from ``{env: NAME}``."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (Mapping, Secret)):
        return SecretText(resolve(value, info).reveal())
    return value if isinstance(value, SecretText) else str(_option(value))


Text = Annotated[str, BeforeValidator(_text)]
Address = Annotated[str, BeforeValidator(_text), AfterValidator(_without_login)]
Name = Annotated[str, BeforeValidator(_name)]
TopicName = Annotated[str, BeforeValidator(_topic_name)]
SwitchType = Annotated[bool, BeforeValidator(_switch)]
DurationType = Annotated[timedelta, PlainSerializer(in_words, return_type=str, when_used="json")]
SizeType = Annotated[int, PlainSerializer(_in_bytes, when_used="json"), "size"]
Brokers = Annotated[
    tuple[Annotated[str, BeforeValidator(_broker)], ...], BeforeValidator(_listed), AfterValidator(_some)
]
Durations = Annotated[
    tuple[Annotated[DurationType, duration("0s", "365d")], ...], BeforeValidator(_listed), AfterValidator(_few)
]
Hidden = Annotated[Secret, BeforeValidator(resolve)]
FilePath = Annotated[Path, BeforeValidator(_file_path)]
FilePaths = Annotated[tuple[FilePath, ...], BeforeValidator(_listed)]
Option = Annotated[str | int | float | bool, PlainValidator(_option)]


def _folded(fold: Callable[[str], str]) -> BeforeValidator:
    def check(value: Any) -> Any:
        return fold(value.strip()) if isinstance(value, str) else value

    return BeforeValidator(check)


Word = _folded(str.lower)
"""Marks a choice whose case does not matter; brokers and other tools use capitals."""

Upper = _folded(str.upper)

_ACKS = {"0": "none", "1": "leader", "-1": "all"}

AcksWord = BeforeValidator(lambda value: _ACKS.get(str(value), value))
"""Marks a choice of acks, which may be given as Kafka's own number."""
