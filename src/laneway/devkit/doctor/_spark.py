"""Checks of what Spark needs: Python workers with the same modules, and an intact local Maven folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from laneway.devkit.doctor._check import Check, failed, ok, warning

__all__ = ["check_maven_folder", "check_worker_modules", "check_worker_python", "poms_without_jars"]

_ASK_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
_ASK_MODULES = "import pyspark, pyarrow, confluent_kafka; print(pyspark.__version__)"
# Enough to show that the folder is broken, without walking a large one to its end.
_MOST_FOLDERS = 20_000


def check_worker_python() -> Check:
    """Spark's Python workers run the same Python version as the driver."""
    name = "Python workers"
    chosen = os.environ.get("PYSPARK_PYTHON")
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if not chosen:
        return ok(name, "PYSPARK_PYTHON is not set, workers use the driver's Python")
    found = shutil.which(chosen)
    if found is None:
        return failed(name, f"PYSPARK_PYTHON is {chosen}, which does not exist", f"set it to {sys.executable}")
    version, problem = _ask(found, _ASK_VERSION)
    if version is None:
        return failed(name, f"PYSPARK_PYTHON does not run: {problem}", f"set it to {sys.executable}")
    if version != ours:
        detail = f"PYSPARK_PYTHON is Python {version}, the driver is {ours}"
        return failed(name, detail, f"unset it or set it to {sys.executable}")
    return ok(name, f"PYSPARK_PYTHON is Python {version}")


def check_worker_modules() -> Check:
    """A new process of the workers' Python can import what a task needs."""
    name = "Worker modules"
    chosen = shutil.which(os.environ.get("PYSPARK_PYTHON") or sys.executable) or sys.executable
    version, problem = _ask(chosen, _ASK_MODULES)
    if version is None:
        return failed(name, f"{chosen}: {problem}", "install laneway into that Python, or change PYSPARK_PYTHON")
    return ok(name, f"pyspark {version}, pyarrow and confluent_kafka can be imported")


def check_maven_folder(folder: Path | None = None) -> Check:
    """The local Maven folder has no POM without its jar.

    Ivy assumes that the jar is beside the POM, and ``spark.jars.packages`` then fails with
    "download failed".
    """
    name = "Local Maven folder"
    repository = folder or Path.home() / ".m2" / "repository"
    if not repository.is_dir():
        return ok(name, "there is none")
    half = poms_without_jars(repository)
    if half:
        return warning(
            name,
            f"POMs without jars in {half[0].parent}" + (" and other folders" if len(half) > 1 else ""),
            f"remove these folders, or {repository}, if spark.jars.packages says 'download failed'",
        )
    return ok(name, f"{repository} is intact")


def poms_without_jars(repository: Path, most: int = 5) -> list[Path]:
    """Find up to *most* poms of jar modules whose jar is missing."""
    found: list[Path] = []
    for count, (directory, _, files) in enumerate(os.walk(repository)):
        if count >= _MOST_FOLDERS or len(found) >= most:
            break
        poms = [name for name in files if name.endswith(".pom")]
        if poms and not any(name.endswith((".jar", ".aar", ".war")) for name in files):
            found += [Path(directory, name) for name in poms if _describes_a_jar(Path(directory, name))]
    return found[:most]


def _describes_a_jar(pom: Path) -> bool:
    try:
        text = pom.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "<packaging>pom</packaging>" not in text


def _ask(python: str, code: str) -> tuple[str | None, str]:
    try:
        answer = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    if answer.returncode:
        return None, (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
    return answer.stdout.strip(), ""
