"""Secrets of the configuration and what others of the machine see of a run: arguments, environments, logs, pages."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.guarded import guarded_broker
from support.processes import LanewayRun
from support.spark_scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from laneway.devkit import broker

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

MARK = f"pl4nted-{os.getpid()}-"
CONFIG = """\
default:
  cluster: main
  clusters:
    main:
      brokers: 127.0.0.1:1
      security:
        protocol: sasl_plaintext
        mechanism: PLAIN
        username: alice
        password: %(mark)sliteral-password
        allow_plaintext_passwords: true
    other:
      brokers: 127.0.0.1:1
      security:
        protocol: ssl
        certificate: key.pem
        key: key.pem
        key_password: %(mark)skey-password
    third:
      brokers: 127.0.0.1:1
      security:
        protocol: sasl_ssl
        mechanism: OAUTHBEARER
        oauth: {token_url: "https://login.example", client_id: a, client_secret: {env: PLANTED_OAUTH}}
    fourth:
      brokers: 127.0.0.1:1
      security: {protocol: sasl_ssl, mechanism: SCRAM-SHA-512, username: a, password: {file: planted.txt}}
  spark:
    conf:
      spark.eventLog.enabled: "true"
      spark.eventLog.dir: %(events)s
      spark.ui.port: "%(port)s"
      spark.sql.streaming.numRecentProgressUpdates: "10"
      spark.driver.memory: 600m
      spark.hadoop.fs.s3a.secret.key: "%(mark)ss3a key: with = signs\\\\ and ü"
      spark.hadoop.fs.s3a.session.token: {env: PLANTED_TOKEN}
      spark.hadoop.fs.azure.account.key.lake.example: {file: planted.txt}
      spark.hadoop.org.example.sesame: {env: PLANTED_SESAME}
      spark.hadoop.org.example.proxy: http://user:%(mark)sproxy@host.example:80
      spark.ssl.historyServer.keyPassword: %(mark)sssl
      spark.executorEnv.DB_PASSWORD: %(mark)sexecutor-env
      spark.executorEnv.DB_USER: {env: PLANTED_USER}
"""
OURS = {name: f"{MARK}{name.lower()}" for name in ("PLANTED_OAUTH", "PLANTED_TOKEN", "PLANTED_SESAME", "PLANTED_USER")}
OURS["LANEWAY__CLUSTERS__FIFTH__SECURITY__PASSWORD"] = f"{MARK}variable"
PLAIN = {
    "LANEWAY__CLUSTERS__FIFTH__BROKERS": "127.0.0.1:1",
    "LANEWAY__CLUSTERS__FIFTH__SECURITY__PROTOCOL": "sasl_ssl",
    "LANEWAY__CLUSTERS__FIFTH__SECURITY__MECHANISM": "PLAIN",
    "LANEWAY__CLUSTERS__FIFTH__SECURITY__USERNAME": "a",
}
SET_BY_THE_USER = {*OURS, "DB_PASSWORD", "DB_USER"}
"""Variables that the user set: they are inherited, as by any program. `spark.executorEnv` asks for a variable."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[broker.Running, str]]:
    """A broker with a password, and the address that asks for it."""
    with guarded_broker(f"{MARK}literal-password") as found:
        yield found


@pytest.fixture
def scene(
    guarded: tuple[broker.Running, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Scene]:
    """On that broker, with runs that find the files their configuration names."""
    made = Scene(guarded[0].bootstrap, tmp_path, request.node.nodeid)
    made.create(made.topic, 2)
    monkeypatch.setattr("support.spark_scene.LanewayRun", RunWithFiles)
    yield made
    made.close()


class RunWithFiles(LanewayRun):
    """A run whose folder has the files that the configuration names."""

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], folder: Path, command: Sequence[str] = ("run",)
    ) -> None:
        (folder / "planted.txt").write_text(f"{MARK}file\n")
        (folder / "key.pem").write_text("")
        super().__init__(arguments, environ, folder, command)


class Spy:
    """Looks at the arguments and environments of all processes, again and again."""

    def __init__(self, known: set[int]) -> None:
        self._known = known
        self.arguments: set[str] = set()
        self.variables: set[str] = set()
        self.files: set[str] = set()
        self.seen: set[int] = set()

    def look(self) -> None:
        """Note what shows a planted text."""
        for folder in Path("/proc").glob("[0-9]*"):
            if int(folder.name) in self._known:
                continue
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes()
                self.seen.add(int(folder.name))
                if MARK.encode() in words:
                    self.arguments.add(words.replace(b"\0", b" ").decode(errors="replace"))
                for entry in (folder / "environ").read_bytes().split(b"\0"):
                    name = entry.partition(b"=")[0].decode(errors="replace")
                    if MARK.encode() in entry and name not in SET_BY_THE_USER:
                        self.variables.add(name)


@contextmanager
def spying() -> Iterator[Spy]:
    """From before the run until after it."""
    # The broker has the password in its own configuration, and this process made it.
    spy, is_over = Spy({int(entry.name) for entry in Path("/proc").glob("[0-9]*")}), threading.Event()

    def watch() -> None:
        while not is_over.wait(0.02):
            spy.look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield spy
    finally:
        is_over.set()
        thread.join()


def prepared(folder: Path) -> tuple[str, int]:
    """The configuration, beside its files, and the port of Spark's page."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "events").mkdir()
    return CONFIG % {"mark": MARK, "events": folder / "events", "port": port}, port


def shown_by_the_page(port: int) -> str:
    """What Spark's page shows of the environment, as a person and as a program gets it."""
    base = f"http://127.0.0.1:{port}"

    def page(path: str) -> str:
        with urllib.request.urlopen(base + path, timeout=20) as answer:  # noqa: S310 - Spark's, on this machine
            return str(answer.read().decode())

    [app] = json.loads(page("/api/v1/applications"))
    pages = [page(f"/api/v1/applications/{app['id']}/environment")]
    pages += [page(path) for path in ("/environment/", "/jobs/", "/SQL/", "/StreamingQuery/", "/executors/")]
    return "".join(pages)


def test_on_spark(scene: Scene, guarded: tuple[broker.Running, str]) -> None:
    """None shows in arguments, environments, output, event log, pages, checkpoint or what is left on the disk."""
    config, port = prepared(scene.folder)
    # In an option of the client, too, whose name does not say that it is a secret.
    rack = f"      client: {{client.rack: {MARK}rack}}\n"
    config = config.replace("    main:\n", f"    main:\n{rack}", 1)
    gate, scratch, conf = scene.folder / "gate", scene.folder / "scratch", scene.folder / "conf"
    scratch.mkdir()
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("spark.driver.memory 700m\nspark.org.example.installed yes\n")
    scene.produce(20)
    flags = ("--brokers", guarded[1])
    variables = {"LANEWAY_DEBUG": 1, "LANEWAY_SPARK_UI": "true", "TMPDIR": scratch, "SPARK_CONF_DIR": conf}
    with spying() as spy:
        run = scene.run(*flags, config=config, seconds=0, gate=gate, **variables, **OURS, **PLAIN)
        scene.until(run.workers)
        page = shown_by_the_page(port)
        arguments = [word for process in run.family() for word in words_of(process.pid)]
        kept = [path.read_bytes() for path in scratch.rglob("*") if path.is_file()]
        gate.touch()
        scene.after_calls(20)
        run.send(signal.SIGTERM)
        assert run.ended() == 0, run.output

    assert any(b"batch" in text for text in kept)  # Spark's checkpoint, which goes with the run
    assert [text for text in kept if MARK.encode() in text] == []
    assert len(spy.seen) > 5
    assert "-Xmx600m" in arguments  # what only the start of the JVM can do was done
    assert spy.arguments == set()
    assert spy.variables == set()
    assert "org.example.sesame" in page
    assert "spark.org.example.installed" in page  # of spark-defaults.conf, which is read as ever
    assert found_in(page) == []
    assert found_in(run.output) == []
    files = [path for name in ("events", "scratch") for path in (scene.folder / name).rglob("*")]
    assert any(scene.folder / "events" in path.parents and path.stat().st_size > 10_000 for path in files)
    assert [path for path in files if path.is_file() and MARK.encode() in path.read_bytes()] == []


def test_on_direct_with_processes(scene: Scene, guarded: tuple[broker.Running, str]) -> None:
    """Nor those of the processes that a handler has of its own."""
    config, _port = prepared(scene.folder)
    scene.produce(20)
    variables = {"LANEWAY_DEBUG": 1, "LANEWAY__HANDLERS__HANDLE__PROCESSES": 2}
    flags = ("--engine", "direct", "--brokers", guarded[1])
    with spying() as spy:
        run = scene.finish(*flags, config=config, **variables, **OURS, **PLAIN)

    assert len(scene.calls()) == 20
    assert len(spy.seen) >= 3
    assert (spy.arguments, spy.variables, found_in(run.output)) == (set(), set(), [])


@pytest.mark.parametrize(("command", "flags"), [("run", ()), ("run", ("--engine", "direct")), ("errors list", ())])
def test_in_the_traceback_of_a_refused_login(
    command: str, flags: tuple[str, ...], scene: Scene, guarded: tuple[broker.Running, str]
) -> None:
    """Nor in the warnings before it."""
    config, _port = prepared(scene.folder)
    wrong = {"LANEWAY__CLUSTERS__MAIN__SECURITY__PASSWORD": f"{MARK}wrong", "LANEWAY_DEBUG": "1"}
    run = scene.run(*flags, "--brokers", guarded[1], config=config, command=command, **{**OURS, **PLAIN, **wrong})
    assert run.ended() == 1, run.output
    assert "Traceback" in run.output
    assert found_in(run.output) == []


@pytest.mark.parametrize("words", [("show",), ("show", "--json"), ("check",)])
def test_in_the_shown_configuration(words: tuple[str, ...], tmp_path: Path) -> None:
    """Where a secret came from decides as well as the name of its option."""
    config, _port = prepared(tmp_path)
    (tmp_path / "laneway.yaml").write_text(config)
    (tmp_path / "planted.txt").write_text(f"{MARK}file\n")
    (tmp_path / "key.pem").write_text("")
    shown = subprocess.run(
        [sys.executable, "-m", "laneway.cli", "config", *words],
        cwd=tmp_path,
        env={**os.environ, **OURS, **PLAIN},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found_in(shown.stdout + shown.stderr) == []


def found_in(text: str) -> list[str]:
    """The planted texts in a text, with what stands before them."""
    return re.findall(r".{0,80}" + re.escape(MARK) + r"[\w-]*", text)


def words_of(pid: int) -> list[str]:
    """The arguments of a process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    return []
