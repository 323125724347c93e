"""The Spark session: every default with its reason, each of them overridable by ``spark.conf``."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laneway._engines.spark.class_archive import archive_options
from laneway._engines.spark.output_filter import OutputFilter
from laneway._engines.spark.query_spec import QuerySpec
from laneway.settings import is_secret, redaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = ["open_session", "session_conf"]

_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
# A query that is stopped logs its own interruption as an error, and a task that is cancelled logs a stack trace.
logger.write.name = org.apache.spark.sql.execution.datasources.v2
logger.write.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
logger.pythonrunner.name = org.apache.spark.sql.execution.python.streaming
logger.pythonrunner.level = off
"""
_LOGGING_OF_FAILURES = """\
# The error of a query is raised and logged in one line; here it would appear again with two stack traces.
logger.query.name = org.apache.spark.sql.execution.streaming.runtime
logger.query.level = off
"""


def session_conf(master: str, *, ui: bool, extra: Mapping[str, str]) -> dict[str, str]:
    """Spark's configuration for a run."""
    conf = {
        # A second copy of a task would run handlers of one key at the same time.
        "spark.speculation": "false",
        "spark.python.daemon.module": "laneway._engines.spark.daemon",
        # A TCP connection between JVM and worker stalls 40 ms a task in delayed acknowledgements; a file does not.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
        # The JVM moves one row a task: compiling a plan for it costs more than running it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        # How long Spark waits before it asks for new records again; the planner waits instead.
        "spark.sql.streaming.pollingDelay": "1ms",
        "spark.sql.streaming.noDataProgressEventInterval": "1h",
        "spark.sql.streaming.numRecentProgressUpdates": "10",
        # The tallies say more than the UI, which shows every setting to anyone who can connect.
        "spark.ui.enabled": "true" if ui else "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        # A worker that dies is replaced and its task repeated; a batch fails only when that happens again and again.
        "spark.task.maxFailures": "8",
        "spark.log.level": "ERROR",
        # Without Hadoop's native library each write would start `readlink` and `chmod` two dozen times: 120 ms a batch.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    }
    if master.startswith("local"):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
    conf.update(extra)
    conf["spark.redaction.regex"] = redaction(extra)
    return conf


def open_session(
    app: str, master: str, conf: Mapping[str, str], spill: OutputFilter | None = None
) -> tuple[SparkSession, bool]:
    """The running session, or a new one whose output goes to *spill*; and whether it is new, so that we stop it.

    Options are never command line arguments, which every user of the machine can read. Options that the JVM needs at
    its start are in a file that only this user can read; secrets follow over the gateway.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    site = str(Path(__file__).with_name("_site"))
    paths = os.pathsep.join((site, *QuerySpec.search_path()))
    builder = SparkSession.builder.appName(f"laneway-{app}").master(master)
    # The UI listens where SPARK_LOCAL_IP says, and on every interface without it; a cluster must reach the driver.
    local = {"SPARK_LOCAL_IP": "127.0.0.1"} if master.startswith("local") else {}
    with tempfile.TemporaryDirectory(prefix="laneway-") as folder, _environment(PYTHONPATH=paths, **local):
        logging = Path(folder) / "log4j2.properties"
        logging.write_text(_LOGGING if os.environ.get("LANEWAY_DEBUG") else _LOGGING + _LOGGING_OF_FAILURES)
        java = [f"-Dlog4j2.configurationFile={logging.as_uri()}", *archive_options()]
        settings: dict[str, Any] = {"spark.executorEnv.PYTHONPATH": paths, **conf}
        java.append(settings.pop("spark.driver.extraJavaOptions", ""))
        settings["spark.driver.extraJavaOptions"] = " ".join(filter(None, java))
        for name, value in settings.items():
            builder = builder.config(name, value)
        with (spill or OutputFilter()).catching(), _deaf_to_sigterm():
            _start_java({"spark.app.name": f"laneway-{app}", "spark.master": master, **settings}, Path(folder))
            return builder.getOrCreate(), True


def _start_java(settings: Mapping[str, str], folder: Path) -> None:
    """Start the JVM unless it runs. The session itself would start it with every option as an argument."""
    from pyspark import SparkContext

    file = folder / "spark.properties"
    file.touch(mode=0o600)
    shown = (item for item in settings.items() if not is_secret(*item))
    file.write_text("".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in shown))
    given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    ours = f"--properties-file {shlex.quote(str(file))} --load-spark-defaults"
    with _environment(PYSPARK_SUBMIT_ARGS=f"{ours} {given}"):
        SparkContext._ensure_initialized()  # noqa: SLF001 - a public call would make the context with it
    file.unlink(missing_ok=True)


def _escaped(text: str) -> str:
    """Escape a text for a Java properties file: ASCII, every other character as a Unicode escape."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    return "".join(chr(unit) if chr(unit).isalnum() and unit < 128 else f"\\u{unit:04x}" for unit in units)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables for the JVM in this block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _deaf_to_sigterm() -> Iterator[None]:
    """Let a JVM started in this block ignore SIGTERM, as pyspark makes it ignore SIGINT.

    A service manager sends SIGTERM to all processes of a service, and the JVM must live until the running batch is
    over. Ignored signals stay ignored in a child process, but ignoring it here, even for a moment, could lose a stop
    request.
    """
    from pyspark import java_gateway

    start = java_gateway.Popen

    def start_deaf(*arguments: Any, preexec_fn: Any = None, **options: Any) -> Any:
        def prepare() -> None:
            if preexec_fn is not None:
                preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        return start(*arguments, preexec_fn=prepare, **options)

    java_gateway.Popen = start_deaf
    try:
        yield
    finally:
        java_gateway.Popen = start
