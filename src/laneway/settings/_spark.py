"""Which Spark options are allowed, and why the others are not."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from laneway.settings._secret import SecretText

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_secret", "redaction", "refusal", "value_refusal"]

_NAMES = "secret|password|passphrase|token|credential|access[.]?key|account[.]?key|sas[.]"
"""Names of options that are likely secrets: Spark's own rule and cloud keys."""
_LOGIN = r"://[^/@:]*:[^@\s]+@"
"""A password in a URL."""
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
    "spark.sql.streaming.checkpointlocation": ("the consumer group keeps the progress of an app", "remove it"),
    "spark.sql.streaming.forcedeletetempcheckpointlocation": ("laneway removes its own temporary folder", "remove it"),
    "spark.ui.enabled": ("it has its own setting", "use spark.ui"),
}
_OFF = {
    "spark.speculation": "two copies of a task would handle the same records at the same time",
    "spark.sql.execution.pyspark.udf.tracebackwithlocals.enabled": "it prints credentials with stack traces",
    "spark.sql.streaming.checkpoint.renamedfilecheck.enabled": "it hides a lost checkpoint write",
}
_PARTS = ("jaas", "login.module", "callback.handler", "config.providers", "plugin.library", "kinit", "ssl.engine")

_FIX = "set it in the spark-defaults.conf of the Spark installation, or make the SparkSession yourself before app.run()"

_KEYS = {
    "spark.archives",
    "spark.executor.sparkhome",
    "spark.extralisteners",
    "spark.files",
    "spark.home",
    "spark.jars",
    "spark.metrics.conf",
    "spark.plugins",
    "spark.pyspark.driver.python",
    "spark.pyspark.python",
    "spark.r.command",
    "spark.r.driver.command",
    "spark.resources.discoveryplugin",
    "spark.shuffle.sort.io.plugin.class",
    "spark.sql.adaptive.customcostevaluatorclass",
    "spark.sql.cache.serializer",
    "spark.sql.execution.pyspark.python",
    "spark.sql.extendedexplainproviders",
    "spark.sql.extensions",
    "spark.sql.maven.additionalremoterepositories",
    "spark.sql.queryexecutionlisteners",
    "spark.sql.streaming.streamingquerylisteners",
    "spark.submit.pyfiles",
    "spark.ui.filters",
    "spark.yarn.archive",
    "spark.yarn.jars",
}
_BEGINNINGS = (
    "spark.jars.",
    "spark.metrics.conf.",
    "spark.plugins.",
    "spark.repl.",
    "spark.sql.catalog.",
    "spark.sql.hive.metastore.jars",
    "spark.yarn.dist.",
)
_ENDS = (".discoveryscript", ".script.file.name", "extraclasspath", "extralibrarypath")
_ENVIRONMENTS = ("spark.executorenv.", "spark.yarn.appmasterenv.", "spark.kubernetes.driverenv.")
_VARIABLE = re.compile(
    r"path|home|shell|env|ifs|.*classpath|ld_.*|dyld_.*|python.*|spark_.*|.*java_.*|java_.*|bash_.*|.*_opts|.*_options"
)
"""Environment variables through which Java, Python, a shell or the linker load code."""

_SENSITIVE = re.compile(r"secret|password|passphrase|token|credential|access[.]?key", re.IGNORECASE)
_HARMLESS = re.compile(
    r"""
    -X(mn|ms|mx|ss)\w+
    | -Xlog(:[\w*+=,]*)? | -verbose:gc | -server | -ea | -esa
    | -XX:[+-]\w+
    | -XX:\w+=[\d.]+[kmgt%]?
    | -D(user\.(timezone|language|country|region) | file\.encoding | java\.io\.tmpdir | java\.net\.prefer\w+
        | networkaddress\.cache\.[\w.]+ | sun\.net\.[\w.]+ | https?\.(proxyHost|proxyPort|nonProxyHosts|keepAlive)
        | javax\.net\.ssl\.(trustStore|trustStoreType|keyStore|keyStoreType)
        | java\.security\.(egd|krb5\.(conf|realm|kdc)) | sun\.security\.krb5\.debug)=.*
    """,
    re.VERBOSE | re.IGNORECASE,
)


def is_secret(key: str, value: str) -> bool:
    """Whether an option holds a secret: by its name, by where it came from, or as part of an address."""
    return isinstance(value, SecretText) or bool(_SECRET_NAME.search(key) or _SECRET_VALUE.search(value))


def redaction(conf: Mapping[str, str]) -> str:
    """The `spark.redaction.regex` that masks these secrets; Spark tries it on names and values."""
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
    if _loads_code(even):
        return f"the option is forbidden: {_CODE}", _FIX
    if not key.startswith("spark."):
        return "a Spark option starts with 'spark.'", f"write 'spark.{key[:60].strip()}', or remove it"
    return None if key == "".join(key.split()) else ("the option has spaces in its name", f"write {even[:80]}")


def value_refusal(key: str, value: str) -> tuple[str, str] | None:
    """Why the value of an allowed option is not allowed; the text never shows the value."""
    even = key.lower()
    if even in _OFF and value.strip().lower() != "false":
        return f"the option must stay off: {_OFF[even]}", "remove it"
    if even.endswith("javaoptions"):
        return _java_refusal(value)
    return None


def _loads_code(even: str) -> bool:
    """Whether an option, in lower case, names code, a program or a place to load them from."""
    if even in _KEYS or even.startswith(_BEGINNINGS) or even.endswith(_ENDS):
        return True
    return any(even.startswith(place) and _VARIABLE.fullmatch(even[len(place) :]) for place in _ENVIRONMENTS)


def _java_refusal(value: str) -> tuple[str, str] | None:
    """Why Java options are not allowed and what to do; the text never shows them.

    Only options that are known to be harmless pass, because each release of Java adds some that load code.
    """
    try:
        options = shlex.split(value)
    except ValueError:
        return "a quote is not closed", "close it"
    if any(_SENSITIVE.search(option) for option in options):
        why = "Java options are arguments of a process, which every user of the machine can read"
        return f"do not put a secret here: {why}", "use a login that needs no secret among the Java options"
    if not all(_HARMLESS.fullmatch(option) for option in options):
        known = "only sizes, garbage collection, time zone, network and trust stores may be set, others load code"
        return f"the option is forbidden: {known}", _FIX
    return None
