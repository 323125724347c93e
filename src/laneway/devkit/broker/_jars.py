"""The pinned Kafka jars: fetched once, with the Ivy that pyspark ships, and checked before every start.

Ivy asks the repository of its own default settings. Behind a mirror, ``LANEWAY_IVY_SETTINGS`` names an Ivy settings
file that is used instead; a proxy goes into ``JAVA_TOOL_OPTIONS`` as for every Java program.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from laneway.devkit.broker._home import KAFKA_VERSION, home_directory, jars_directory, locked
from laneway.devkit.broker._java import find_java
from laneway.errors import BrokerError

__all__ = ["Progress", "fetch", "jar_problems", "pinned_jars", "require_jars"]

Progress = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)`` with stage ``"resolving"`` or ``"downloading"``."""

# Two things a plain `-dependency kafka_2.13` does not bring: the logging bridge (Kafka's own build adds it to its
# archive only), and jars that Maven types as "bundle" (scala-logging, snappy), hence `-types jar bundle` below.
_MODULE = f"""\
<ivy-module version="2.0">
  <info organisation="laneway" module="dev-broker"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}" conf="default->master,runtime"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4" conf="default->master,runtime"/>
  </dependencies>
</ivy-module>
"""


def require_jars(home: Path, progress: Progress | None = None) -> Path:
    """The folder of the jars; fetches them if they are missing, checks them otherwise."""
    directory = jars_directory(home)
    if not directory.is_dir():
        return fetch(home=home, progress=progress)
    problems = jar_problems(directory)
    if problems:
        raise BrokerError(
            f"The Kafka jars in {directory} are not the pinned ones: {_in_short(problems)}. "
            "Fix: run `laneway kafka fetch --force`"
        )
    return directory


def fetch(*, home: Path | None = None, force: bool = False, progress: Progress | None = None) -> Path:
    """Fetch the jars unless they are complete; return their folder.

    The jars are fetched into a folder beside the final one, which is renamed after the check, so an interrupted fetch
    leaves nothing that looks complete.

    Args:
        home: default ``LANEWAY_HOME``.
        force: fetch again even if the folder is complete.
        progress: called for each module found and each jar downloaded.

    Raises:
        BrokerError: no Java, no pyspark, no network, or a jar with other content than the pinned one.
    """
    home = home_directory(home)
    directory = jars_directory(home)
    with locked(home / "kafka" / ".lock"):
        if not force and directory.is_dir() and not jar_problems(directory):
            return directory
        directory.parent.mkdir(parents=True, exist_ok=True)
        # Ivy's cache goes into the same folder, so that a jar that failed its check is never reused from it.
        work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=directory.parent))
        try:
            fetched = work / "libs"
            _run_ivy(work, fetched, progress)
            _accept(fetched, directory)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return directory


def _accept(fetched: Path, directory: Path) -> None:
    problems = jar_problems(fetched)
    if problems:
        raise BrokerError(
            f"The fetched Kafka jars are not the pinned ones: {_in_short(problems)}. "
            "Fix: check the repository or mirror they came from, then run `laneway kafka fetch` again"
        )
    if directory.exists():
        # Into the work folder, so that it is removed with it: one rename cannot replace an existing folder.
        directory.rename(fetched.with_name("replaced"))
    fetched.rename(directory)


def _run_ivy(work: Path, target: Path, progress: Progress | None) -> None:
    module = work / "ivy.xml"
    module.write_text(_MODULE, encoding="utf-8")
    command = [str(find_java().executable), "-cp", str(_ivy_jar()), "org.apache.ivy.Main"]
    settings = os.environ.get("LANEWAY_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    command += ["-cache", str(work / "cache"), "-ivy", str(module), "-confs", "default", "-types", "jar", "bundle"]
    command += ["-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"]
    total = len(pinned_jars())
    counts = {"resolving": 0, "downloading": 0}
    last: deque[str] = deque(maxlen=400)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        for line in ivy.stdout or ():
            last.append(line.rstrip())
            stage = _stage_of(line)
            if stage and progress:
                counts[stage] = min(counts[stage] + 1, total)
                progress(stage, counts[stage], total)
    if ivy.returncode or not target.is_dir():
        reasons = [line.strip() for line in last if _is_reason(line)]
        raise BrokerError(
            f"The Kafka jars cannot be fetched: {_in_short(reasons) or 'Ivy gave no reason'}. Fix: check the network; "
            "a proxy is set with JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…, a mirror with LANEWAY_IVY_SETTINGS=FILE"
        )


def _stage_of(line: str) -> str | None:
    if line.startswith("\tfound "):
        return "resolving"
    return "downloading" if "[SUCCESSFUL ]" in line else None


def _is_reason(line: str) -> bool:
    marks = ("not found:", "Exception", "download failed", "FAILED", "Server access", "unresolved dependency", "rror:")
    return any(mark in line for mark in marks)


def _in_short(reasons: list[str]) -> str:
    unique = list(dict.fromkeys(reasons))
    more = len(unique) - 4
    return "; ".join(unique[:4]) + (f" and {more} more" if more > 0 else "")


def _ivy_jar() -> Path:
    # Without importing pyspark, which takes most of a second.
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(folder, "jars").glob("ivy-*.jar")):
            return jar
    raise BrokerError(
        "The Kafka jars are fetched with the Ivy jar of pyspark, and there is none. "
        "Fix: install laneway's requirements again (`pip install --force-reinstall pyspark`)"
    )


@cache
def pinned_jars() -> Mapping[str, str]:
    """The SHA-256 of every jar, by file name."""
    lines = Path(__file__).with_name("_jars.sha256").read_text(encoding="ascii").splitlines()
    pairs = (line.split() for line in lines if line)
    return MappingProxyType({name: digest for digest, name in pairs})


def jar_problems(directory: Path, pins: Mapping[str, str] | None = None) -> list[str]:
    """How *directory* differs from the pinned jars; empty when it is complete.

    Hashes every byte (44 MB, about 0.15 s): sizes alone would not reveal a tampered jar.
    A jar that is not pinned counts too, because the class path takes every jar in the folder.
    """
    expected = pinned_jars() if pins is None else pins
    if not directory.is_dir():
        return ["the folder is missing"]
    present = {path.name: path for path in directory.glob("*.jar")}
    problems = [f"{name} is missing" for name in sorted(expected.keys() - present.keys())]
    problems += [f"{name} does not belong here" for name in sorted(present.keys() - expected.keys())]
    for name in sorted(expected.keys() & present.keys()):
        with present[name].open("rb") as jar:
            if hashlib.file_digest(jar, "sha256").hexdigest() != expected[name]:
                problems.append(f"{name} has other content than the pinned one")
    return problems
