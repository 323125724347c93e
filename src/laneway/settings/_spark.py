"""Which Spark options may be given, and why the others may not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from laneway.settings._secret import SecretText
from laneway.settings._spark_code import FIX, java_refusal, loads_code

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_secret", "redaction", "refusal", "value_refusal"]

_NAMES = "secret|password|passphrase|token|credential|access[.]?key|account[.]?key|sas[.]"
"""Options whose value is likely a secret; Spark's own rule and the cloud keys."""
_LOGIN = r"://[^/@:]*:[^@\s]+@"
"""A password within an address."""
_SECRET_NAME, _SECRET_VALUE = re.compile(_NAMES, re.IGNORECASE), re.compile(_LOGIN)
_CODE = "it loads code from the configuration"

_REFUSED = {
    "spark.app.name": ("the name of the app is used", "change the name in App(...)"),
    "spark.master": ("it has its own setting", "use spark.master"),
    "spark.python.daemon.module": ("laneway starts the Python workers itself", "remove it"),
    "spark.python.use.daemon": ("laneway starts the Python workers itself", "remove it"),
    "spark.python.worker.module": ("laneway starts the Python workers itself", "remove it"),
    "spark.redaction.regex": ("it decides which secrets Spark prints", "remove it"),
    "spark.sql.redaction.options.regex": ("it decides which secrets Spark prints", "remove it"),
    "spark.sql.redaction.string.regex": ("it decides which secrets Spark prints", "remove it"),
    "spark.sql.streaming.checkpointlocation": ("the checkpoint belongs to one app", "use spark.checkpoint"),
    "spark.sql.streaming.forcedeletetempcheckpointlocation": ("it deletes the offsets of the app", "remove it"),
    "spark.ui.enabled": ("it has its own setting", "use spark.ui"),
}
_OFF = {
    "spark.speculation": "two copies of a task would handle the same records at the same time",
    "spark.sql.execution.pyspark.udf.tracebackwithlocals.enabled": "it prints logins with the traces of errors",
    "spark.sql.streaming.checkpoint.renamedfilecheck.enabled": "it hides a checkpoint write that was lost",
}
_PARTS = ("jaas", "login.module", "callback.handler", "config.providers", "plugin.library", "kinit", "ssl.engine")


def is_secret(key: str, value: str) -> bool:
    """Whether an option holds a secret: by its name, by where it came from, or as part of an address."""
    return isinstance(value, SecretText) or bool(_SECRET_NAME.search(key) or _SECRET_VALUE.search(value))


def redaction(conf: Mapping[str, str]) -> str:
    """The `spark.redaction.regex` with which Spark shows no secret of these; it is tried on names and on values."""
    named = (key.removeprefix("spark.hadoop.") for key, value in conf.items() if isinstance(value, SecretText))
    return "|".join((f"(?i){_NAMES}", _LOGIN, *(rf"\Q{key}\E" for key in named)))


def refusal(key: str) -> tuple[str, str] | None:
    """Why an option is not allowed and what to write instead; None when it is allowed."""
    even = "".join(key.split()).lower()
    if even in _REFUSED:
        reason, fix = _REFUSED[even]
        return f"the option is managed by laneway: {reason}", fix
    if any(part in even for part in _PARTS):
        return f"the option is forbidden: {_CODE}", "remove it"
    if loads_code(even):
        return f"the option is forbidden: {_CODE}", FIX
    if not key.startswith("spark."):
        return "a Spark option starts with 'spark.'", f"write 'spark.{key[:60].strip()}', or remove it"
    return None if key == "".join(key.split()) else ("the option has spaces in its name", f"write {even[:80]}")


def value_refusal(key: str, value: str) -> tuple[str, str] | None:
    """Why the value of an allowed option is not allowed; the text never shows the value."""
    even = key.lower()
    if even in _OFF and value.strip().lower() != "false":
        return f"the option must stay off: {_OFF[even]}", "remove it"
    if even.endswith("javaoptions"):
        return java_refusal(value)
    return None
