"""Spark options that load or run code, and the Java options that do not."""

from __future__ import annotations

import re
import shlex

__all__ = ["FIX", "java_refusal", "loads_code"]

FIX = "set it in the spark-defaults.conf of the Spark installation, or make the SparkSession yourself before app.run()"

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
"""Variables by which Java, Python, the shell or the linker of a process load code."""

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


def loads_code(even: str) -> bool:
    """Whether an option, in lower case, names code, a program or a place that these are loaded from."""
    if even in _KEYS or even.startswith(_BEGINNINGS) or even.endswith(_ENDS):
        return True
    return any(even.startswith(place) and _VARIABLE.fullmatch(even[len(place) :]) for place in _ENVIRONMENTS)


def java_refusal(value: str) -> tuple[str, str] | None:
    """Why Java options are not allowed and what to do; the text never shows them.

    Only options that are known to be harmless pass: each release of Java has more that load code.
    """
    try:
        options = shlex.split(value)
    except ValueError:
        return "a quote has no end", "close it"
    if any(_SENSITIVE.search(option) for option in options):
        why = "Java options are arguments of a process, which every user of the machine can read"
        return f"a secret does not belong here: {why}", "use a login that needs no secret among the Java options"
    if not all(_HARMLESS.fullmatch(option) for option in options):
        known = "only sizes, garbage collection, time zone, network and trust stores may be set, others load code"
        return f"the option is forbidden: {known}", FIX
    return None
