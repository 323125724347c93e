"""A real schema registry for tests: Apicurio from Maven, on the loopback address, in memory.

The newest release that runs on Java 17 is 2.6; the later ones need Java 21.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import signal
import subprocess
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyspark
import pytest

from support.doors import find_java, free_ports, home_directory, locked
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RegistryServer", "schema_registry"]

_VERSION = "2.6.13.Final"
_SHA256 = "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba"
_MODULE = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="laneway" module="schema-registry"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{_VERSION}" conf="default->master">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class RegistryServer:
    """One process; it may be stopped and started again, with an empty memory."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._folder = folder
        self._log = log
        [self.port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, wait for the first answer, and let it enforce that new schemas can read old values."""
        command = [
            str(find_java().executable), "-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
            "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self.port}",
            "-cp", f"{self._folder}/*:{self._folder}/lib/*", "io.quarkus.runner.GeneratedMain",
        ]  # fmt: skip
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually(self._is_up, timeout=60, why=lambda: self._log.read_text(errors="replace")[-2000:])

    def stop(self) -> None:
        """Stop it; requests are refused from now on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def suspend(self) -> None:
        """From now on requests hang."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Answer again, with all that was registered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _is_up(self) -> bool:
        body = json.dumps({"compatibility": "BACKWARD"}).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("PUT", f"{urlsplit(self.url).path}/config", body, {"Content-Type": "application/json"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


@contextmanager
def schema_registry() -> Iterator[RegistryServer]:
    """A registry that runs until the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        server = RegistryServer(_fetched(), Path(folder, "registry.log"))
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _fetched() -> Path:
    """The folder of the unpacked archive; fetched once for this user."""
    folder = home_directory(None) / "schema-registry" / _VERSION
    with locked(folder.with_suffix(".lock")):
        if not folder.is_dir():
            work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder.parent))
            try:
                _unpack(_download(work), work / "app")
                (work / "app").rename(folder)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return folder


def _download(work: Path) -> Path:
    [ivy] = Path(pyspark.__file__).parent.joinpath("jars").glob("ivy-*.jar")
    (work / "ivy.xml").write_text(_MODULE)
    done = subprocess.run(
        [
            str(find_java().executable), "-cp", str(ivy), "org.apache.ivy.Main", "-cache", str(work / "cache"),
            "-ivy", str(work / "ivy.xml"), "-confs", "default", "-types", "tar.gz", "-retrieve",
            f"{work}/[artifact]-[revision](-[classifier]).[ext]",
        ],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    [archive] = list(work.glob("*.tar.gz")) or pytest.fail(done.stdout[-2000:])
    with archive.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == _SHA256
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
