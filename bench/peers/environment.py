"""What the peers need: a Python environment of their own, and the jars and classes of the Java peer.

``python bench/peers/environment.py`` makes both; ``--lock`` pins the Python packages and the jars again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from laneway.devkit.broker import find_java, jar_problems
from laneway.devkit.broker._jars import _ivy_jar

__all__ = ["HERE", "HOME", "PARALLEL_CONSUMER", "java_command", "python", "versions"]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HOME = ROOT / ".make" / "peers"
LOCK, PINS = HERE / "requirements.lock", HERE / "java" / "jars.sha256"
SOURCE = HERE / "java" / "ParallelConsumerRun.java"
PARALLEL_CONSUMER = "0.5.3.3"
_PATIENCE = 600  # seconds
_MODULE = f"""\
<ivy-module version="2.0">
  <info organisation="laneway" module="peers"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.confluent.parallelconsumer" name="parallel-consumer-core" rev="{PARALLEL_CONSUMER}"
                conf="default->master,runtime"/>
  </dependencies>
</ivy-module>
"""


def python() -> str:
    """The interpreter of the peers' environment, which is made when it is missing or older than its lock."""
    interpreter, stamp = HOME / "bin" / "python", HOME / "installed"
    if not stamp.exists() or stamp.stat().st_mtime < LOCK.stat().st_mtime:
        environment = {**os.environ, "VIRTUAL_ENV": str(HOME), "UV_COMPILE_BYTECODE": "1"}
        # --allow-existing keeps the jars, which are in the same folder.
        _run([_uv(), "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(HOME)])
        _run([_uv(), "pip", "sync", "--quiet", "--require-hashes", str(LOCK)], environment)
        stamp.touch()
    return str(interpreter)


def java_command() -> list[str]:
    """The command of the Java peer, fetched and compiled when it is not there."""
    jars, classes = HOME / "jars", HOME / "classes"
    pins = dict(reversed(line.split()) for line in PINS.read_text(encoding="ascii").splitlines())
    if jar_problems(jars, pins):
        fetch_jars(jars)
        problems = jar_problems(jars, pins)
        if problems:
            shutil.rmtree(jars)
            raise RuntimeError(f"the fetched jars are not the pinned ones: {'; '.join(problems)}")
    compiled = classes / f"{SOURCE.stem}.class"
    if not compiled.exists() or compiled.stat().st_mtime < SOURCE.stat().st_mtime:
        javac = find_java().executable.resolve().with_name("javac")
        _run([str(javac), "-Xlint:all", "-d", str(classes), "-cp", f"{jars}/*", str(SOURCE)])
    return [str(find_java().executable), "-cp", f"{jars}/*{os.pathsep}{classes}", SOURCE.stem]


def fetch_jars(target: Path) -> None:
    """Fetch with the Ivy that pyspark ships, from the repository of its default settings, as the broker's jars are."""
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="laneway-peers-") as work:
        module = Path(work, "ivy.xml")
        module.write_text(_MODULE, encoding="utf-8")
        settings = os.environ.get("LANEWAY_IVY_SETTINGS")
        _run(
            [
                *(str(find_java().executable), "-cp", str(_ivy_jar()), "org.apache.ivy.Main"),
                *(("-settings", settings) if settings else ()),
                *("-cache", f"{work}/cache", "-ivy", str(module), "-confs", "default", "-types", "jar", "bundle"),
                *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
            ]
        )


def versions() -> dict[str, str]:
    """The versions that are measured."""
    names = ("faststream", "quixstreams", "aiokafka", "confluent-kafka")
    script = (
        f"import json; from importlib.metadata import version; print(json.dumps({{n: version(n) for n in {names}}}))"
    )
    found = subprocess.run([python(), "-c", script], capture_output=True, text=True, check=True).stdout
    return {**json.loads(found), "parallel-consumer": PARALLEL_CONSUMER}


def lock() -> None:
    """Pin the packages and the jars again."""
    pin = ("--universal", "--generate-hashes", "--no-emit-index-url", "--quiet", "--upgrade")
    named = ("--custom-compile-command", "python bench/peers/environment.py --lock", "--output-file", LOCK.name)
    _run([_uv(), "pip", "compile", "requirements.in", "--python-version", "3.11", *pin, *named], folder=HERE)
    fetch_jars(HOME / "jars")
    lines = [f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n" for jar in (HOME / "jars").glob("*.jar")]
    PINS.write_text("".join(sorted(lines, key=lambda line: line.split()[1])), encoding="ascii")


def _uv() -> str:
    found = shutil.which("uv") or str(ROOT / ".make" / "uv" / "bin" / "uv")
    if not Path(found).exists():
        raise FileNotFoundError("there is no uv. Fix: run `make setup`, or install uv")
    return found


def _run(command: list[str], environment: dict[str, str] | None = None, folder: Path | None = None) -> None:
    # A registry that does not answer must not block the bench forever.
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=folder, timeout=_PATIENCE
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")


if __name__ == "__main__":
    if "--lock" in sys.argv:
        lock()
    print(python(), *java_command())
