"""A Spark master and two workers of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark
import pytest

from laneway.devkit import broker
from laneway.devkit.history import read_history
from support.processes import end_processes
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

TESTS = Path(__file__).parents[2]
CONFIG = """\
default:
  spark:
    conf:
      spark.hadoop.fs.s3a.secret.key: pl4nted-by-name
      spark.hadoop.org.example.sesame: {env: IT_SESAME}
"""
_SPAN = 0.05  # seconds


@contextmanager
def _java(name: str, folder: Path, environ: Mapping[str, str], *arguments: str) -> Iterator[Path]:
    """Run one of Spark's classes, and end it with everything below it; gives the file of its output."""
    home = Path(pyspark.__file__).parent
    log = folder / f"{name.rsplit('.', 1)[-1]}-{len(list(folder.iterdir()))}.txt"
    command = [str(broker.find_java().executable), "-Xmx256m", "-cp", f"{home}/jars/*", name, *arguments]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={
                **os.environ,
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_SCALA_VERSION": "2.13",
                **environ,
            },
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        yield log
    finally:
        end_processes([*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)])
        process.wait()


def test_two_workers(scene: Scene) -> None:
    """An app runs on all executors at once, however few cores the driver has; no file of the cluster holds a secret."""
    scene.produce(9_000, keys=200)
    folder = scene.folder / "cluster"
    folder.mkdir()
    history = scene.folder / "history"
    environ = {"IT_APP": scene.group, "IT_TOPIC": scene.topic, "IT_HISTORY": str(history), "IT_SECONDS": "0.02"}
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        flags = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = stack.enter_context(_java(f"{deploy}.master.Master", folder, {}, *flags))
        pattern = re.compile(r"Starting Spark master at (spark://\S+)")
        url = eventually(lambda: pattern.search(log.read_text()), why=log.read_text).group(1)
        for number in range(2):
            own = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"))
            stack.enter_context(_java(f"{deploy}.worker.Worker", folder, environ, *flags, *own, url))
        eventually(lambda: log.read_text().count("Registering worker") == 2, why=log.read_text)
        sesame = "pl4nted-by-place"
        run = scene.finish("--master", url, config=CONFIG, sesame=sesame, seconds=0.02, cores=1, timeout=150)
        pids = {path.stem for path in history.glob("*.history")}
        executors = log.read_text().count("Launching executor")
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert sum(b"Spark Executor Command" in text for text in texts) == 2  # what an executor was started with
    assert not any(b"pl4nted" in text for text in texts)
    assert scene.verdict().is_clean, run.output
    assert scene.lag() == 0
    assert executors == 2
    assert len(pids) == 2
    assert (
        _at_once(history, scene.folder / "alone") > 0.1
    )  # 0 when one executor waits for the other; how much, a busy machine decides


def _at_once(history: Path, folder: Path) -> float:
    """The part of the time in which both processes had calls under way, of the time in which the idler one had some."""
    spans = []
    for path in history.glob("*.history"):
        own = folder / path.stem
        own.mkdir(parents=True)
        shutil.copy(path, own)
        spans.append({int(event.start / _SPAN) for event in read_history(own)})
    return len(set.intersection(*spans)) / min(map(len, spans))
