"""Find a Java that can run Kafka, or say how to get one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from laneway.errors import BrokerError

__all__ = ["MINIMUM_JAVA", "Java", "find_java", "major_version"]

MINIMUM_JAVA = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_EXACT = re.compile(r'version "([\w.+-]+)"')
_FIX = (
    f"Fix: install a Java {MINIMUM_JAVA} or newer (Debian and Ubuntu: `apt install openjdk-17-jre-headless`; "
    "macOS: `brew install openjdk`), or set JAVA_HOME to one you have"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime on this machine."""

    executable: Path
    major: int
    version: str
    """The full version, such as 17.0.15."""


def major_version(text: str) -> int | None:
    """Parse the major version from the output of ``java -version``.

    >>> major_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> major_version('java version "1.8.0_292"')
    8
    """
    match = _VERSION.search(text)
    if match is None:
        return None
    first, second = int(match[1]), match[2]
    # Up to Java 8 the version was written 1.8.
    return int(second) if first == 1 and second else first


def find_java() -> Java:
    """Find ``JAVA_HOME/bin/java``, or ``java`` on the PATH.

    Raises:
        BrokerError: there is none, it does not run, or it is too old.
    """
    executable, source = _locate()
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerError(f"Java at {executable} ({source}) does not run: {error}. {_FIX}") from error
    text = answer.stderr + answer.stdout
    major, exact = major_version(text), _EXACT.search(text)
    if major is None:
        raise BrokerError(f"Java at {executable} ({source}) does not report its version. {_FIX}")
    if major < MINIMUM_JAVA:
        raise BrokerError(f"Java at {executable} ({source}) is version {major}; Kafka needs {MINIMUM_JAVA}. {_FIX}")
    return Java(executable, major, exact[1] if exact else str(major))


def _locate() -> tuple[Path, str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        executable = Path(home) / "bin" / "java"
        if not executable.is_file():
            raise BrokerError(f"JAVA_HOME is {home}, but there is no bin/java in it. {_FIX}")
        return executable, "from JAVA_HOME"
    found = shutil.which("java")
    if found is None:
        raise BrokerError(f"There is no Java: JAVA_HOME is not set and `java` is not on the PATH. {_FIX}")
    return Path(found), "from the PATH"
