"""Log lines of the command: one handler on stderr, as text or as one JSON object for each line."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from laneway.cli._errors_view import safe

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LogFormatOption", "LogLevelOption", "configure_logging", "log_lines", "user_may_configure"]

_LONGEST = 100_000  # characters of a line


class LogFormat(StrEnum):
    """How a log line is written."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe lines to show."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option("--log-format", help="Format of log lines on stderr. [default: text, or as configured]"),
]
LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option("--log-level", help="Level of laneway's own log lines. [default: info, or as configured]"),
]


class _TextFormatter(logging.Formatter):
    """Time, level, logger and message. Control characters, which a record may contain, are escaped."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(safe(line.expandtabs(), _LONGEST) for line in super().format(record).split("\n"))


class _JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message and, after an exception, its trace."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the current `sys.stderr`: a live view replaces it, so that lines appear above the panel."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


_HANDLER = _StderrHandler()
# py4j logs a trace for each failed call from the JVM, as in a forced stop; the engine reports what matters.
_HANDLER.addFilter(lambda record: record.name.partition(".")[0] != "py4j")


@contextmanager
def log_lines() -> Iterator[None]:
    """Show log lines in this block: laneway's from INFO on, those of other loggers from WARNING on."""
    configure_logging("info", "text")
    logging.getLogger().addHandler(_HANDLER)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(_HANDLER)


def configure_logging(level: str, log_format: str) -> None:
    """Choose how log lines look, and from which level on laneway's own are shown."""
    _HANDLER.setFormatter(_JsonFormatter() if log_format == LogFormat.JSON else _TextFormatter())
    logging.getLogger("laneway").setLevel(level.upper())


@contextmanager
def user_may_configure() -> Iterator[None]:
    """Detach the handler while a user's module is imported. If the module configures logging, that one counts."""
    root = logging.getLogger()
    is_ours = _HANDLER in root.handlers
    root.removeHandler(_HANDLER)
    before = list(root.handlers)
    try:
        yield
    finally:
        if is_ours and root.handlers == before:
            root.addHandler(_HANDLER)
