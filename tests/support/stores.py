"""Real Redis and PostgreSQL for tests and benchmarks, on free ports of the loopback address.

``python tests/support/stores.py`` installs both with apt-get; `make setup` calls it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["PostgresServer", "RedisServer", "missing", "postgres_server", "redis_server"]

_PACKAGES = {"redis-server": "redis-server", "initdb": "postgresql"}
_SLOW = 30.0


def missing() -> list[str]:
    """Debian packages whose programs are not here."""
    return [package for program, package in _PACKAGES.items() if not program_path(program)]


def program_path(name: str) -> str | None:
    """Where a program is; Debian keeps those of PostgreSQL out of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


class _Server:
    """One process with a folder of its own, stopped by its id."""

    def __init__(self, folder: Path) -> None:
        from support.doors import free_ports

        self.folder = folder
        [self.port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait for the first answer."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, **_user(self.folder)
            )
        end = time.monotonic() + _SLOW
        while not self._is_up():
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text(errors="replace")[-2000:])
            time.sleep(0.02)

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it."""
        self._end(self._polite)

    def suspend(self) -> None:
        """From now on requests hang."""
        self._each(signal.SIGSTOP)

    def resume(self) -> None:
        """Answer again."""
        self._each(signal.SIGCONT)

    _polite = signal.SIGTERM

    def _each(self, number: signal.Signals) -> None:
        import psutil

        assert self._process is not None
        parent = psutil.Process(self._process.pid)
        for process in (parent, *parent.children(recursive=True)):
            process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
            process.wait(_SLOW)

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _is_up(self) -> bool:
        raise NotImplementedError


class RedisServer(_Server):
    """Redis that keeps nothing on the disk."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder)
        self._options = options
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> list[str]:
        return [
            program_path("redis-server") or "redis-server", "--bind", "127.0.0.1", "--port", str(self.port),
            "--save", "", "--appendonly", "no", "--dir", str(self.folder), *self._options,
        ]  # fmt: skip

    def _is_up(self) -> bool:
        import redis

        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


class PostgresServer(_Server):
    """PostgreSQL with its default settings, reached by TCP without a password."""

    _polite = signal.SIGINT  # ends sessions at once

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.dsn = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        initdb = program_path("initdb") or "initdb"
        data = str(folder / "data")
        subprocess.run(
            [initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True, capture_output=True, **_user(folder),
        )  # fmt: skip

    def _command(self) -> list[str]:
        return [
            program_path("postgres") or "postgres", "-D", str(self.folder / "data"), "-h", "127.0.0.1",
            "-p", str(self.port), "-k", str(self.folder),
        ]  # fmt: skip

    def _is_up(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.Error:
            return False
        return True


@contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """A running Redis."""
    with _running(lambda folder: RedisServer(folder, *options)) as server:
        yield server


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running PostgreSQL."""
    with _running(PostgresServer) as server:
        yield server


@contextmanager
def _running(make: Callable[[Path], _Server]) -> Iterator:
    folder = Path(tempfile.mkdtemp(prefix="laneway-store-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        server = make(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _user(folder: Path) -> dict[str, object]:
    """PostgreSQL refuses to run as root."""
    return {"user": "postgres", "group": "postgres", "cwd": folder} if os.geteuid() == 0 else {"cwd": folder}


def install() -> int:
    """Install what is missing, or say how."""
    packages = missing()
    if not packages:
        return 0
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(
            f"Tests of dedup stores need {' and '.join(packages)}. Install them, for example with: "
            f"sudo apt-get install --no-install-recommends {' '.join(packages)}",
            file=sys.stderr,
        )
        return 0
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Debian starts what it installs; here nothing but tests starts servers.
    policy = Path("/usr/sbin/policy-rc.d")
    is_ours = not policy.exists()
    if is_ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        print(f"installing {' and '.join(packages)}", flush=True)
        subprocess.run(["apt-get", "update", "-qq"], check=False, env=environment)
        done = subprocess.run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
            check=False, env=environment, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    finally:
        if is_ours:
            policy.unlink()
    return done.returncode


if __name__ == "__main__":
    sys.exit(install())
