"""Log lines of the command: format, level, a user's own configuration, the live view, and no secrets."""

from __future__ import annotations

import io
import json
import logging
import sys
import uuid

import pytest

from laneway._kafka import Admin
from laneway.cli import main
from laneway.cli._live_view import RunView
from laneway.cli._logging import configure_logging, log_lines, user_may_configure
from laneway.errors import LanewayError, SettingsError
from laneway.observe import logger
from laneway.settings import load

PLANTED = "pl4nted-s3cret"


@pytest.fixture(autouse=True)
def _level():
    """What a test sets is undone."""
    log = logging.getLogger("laneway")
    before = log.level
    yield
    log.setLevel(before)


class Terminal(io.StringIO):
    """Output that says it is a terminal."""

    def isatty(self):
        return True


def test_a_line_has_level_logger_and_message(capsys):
    """Of laneway INFO is shown, of other loggers only warnings, and of py4j nothing: each forced stop makes it log."""
    with log_lines():
        logger("kafka").info("created %s", "orders.retry")
        logger("kafka").debug("hidden")
        logging.getLogger("shop").info("hidden")
        logging.getLogger("shop").warning("slow")
        logging.getLogger("py4j.clientserver").error("hidden")
    lines = [line.split(" ", 2)[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["INFO laneway.kafka: created orders.retry", "WARNING shop: slow"]


def test_a_json_line_is_one_object(capsys):
    """Also when the message has line breaks; a trace is in its own field."""
    with log_lines():
        configure_logging("debug", "json")
        error = ValueError("two\nlines")
        logger("core").error("failed: %s", error, exc_info=error)
        logger("core").debug("fine")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["logger"], first["message"]) == ("error", "laneway.core", "failed: two\nlines")
    assert first["exception"].endswith("ValueError: two\nlines")
    assert (second["message"], second["time"][-6:], "exception" in second) == ("fine", "+00:00", False)


def test_control_characters_are_escaped(capsys):
    """What a record brings along cannot move the cursor; line breaks stay."""
    with log_lines():
        logger("core").warning("failed: %s", "\x1b[2Jtwo\nlines\x07")
    assert capsys.readouterr().err.endswith("failed: \\x1b[2Jtwo\nlines\\x07\n")


def test_the_logging_that_a_module_configures_counts(monkeypatch, capsys):
    """`basicConfig` in the app's module takes effect, and no line is shown twice."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    with log_lines():
        with user_may_configure():
            logging.basicConfig(format="mine: %(message)s", level=logging.INFO)
        logging.getLogger("shop").info("hello")
        logger("kafka").info("hello")
    assert capsys.readouterr().err.splitlines() == ["mine: hello", "mine: hello"]


def test_without_a_configuration_of_its_own_nothing_changes(capsys):
    """The command's handler is back after the import."""
    with log_lines():
        with user_may_configure():
            pass
        logger("kafka").info("hello")
    assert capsys.readouterr().err.endswith("INFO laneway.kafka: hello\n")


def test_lines_appear_above_the_live_view(monkeypatch):
    """On a terminal a line goes through the view, which draws its panel again below."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with log_lines(), RunView("billing", output=terminal):
        logger("kafka").warning("no answer")
        during = terminal.getvalue()
    assert "WARNING laneway.kafka: no answer\n" in during
    assert during.rindex("billing") > during.index("no answer")


def test_lines_go_to_a_file_beside_the_live_view(monkeypatch, capsys):
    """Where stderr is redirected, nothing of it is on the terminal."""
    terminal = Terminal()
    with log_lines(), RunView("billing", output=terminal):
        logger("kafka").warning("no answer")
    assert "no answer" in capsys.readouterr().err
    assert "no answer" not in terminal.getvalue()


@pytest.mark.parametrize("words", [["--log-format", "xml"], ["--log-level", "loud"]])
def test_a_wrong_word_is_wrong_use(monkeypatch, capsys, words):
    """Exit code 2, and the words there are."""
    monkeypatch.setattr(sys, "argv", ["laneway", "run", "shop:app", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "is not one of" in capsys.readouterr().err


def test_variables_choose_format_and_level(tmp_path, monkeypatch, capsys):
    """A warning about the settings is a JSON line, and a flag wins over a variable."""
    name = f"shop{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text("from laneway import App\napp = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("LANEWAY_LOG_FORMAT", "json")
    monkeypatch.setenv("LANEWAY_LOG_LEVEL", "error")
    monkeypatch.setenv("LANEWAY__CLUSTERS__MAIN__PRODUCER__ACKS", "leader")
    seen = []
    for words in ([], ["--log-level", "warning"]):
        monkeypatch.setattr(sys, "argv", ["laneway", "run", f"{name}:app", *words])
        with pytest.raises(SystemExit):
            main()
        lines = capsys.readouterr().err.splitlines()
        seen.append([json.loads(line)["logger"] for line in lines if line.startswith("{")])
    assert seen == [[], ["laneway.settings"]]


def test_no_log_record_shows_a_secret(monkeypatch, capsys):
    """Neither settings that are logged whole, nor the errors of a client that has the secret."""
    security = {"protocol": "sasl_plaintext", "mechanism": "PLAIN", "username": "app", "password": {"env": "P"}}
    overrides = {
        "brokers": "127.0.0.1:1",
        "clusters.main.security": {**security, "allow_plaintext_passwords": True},
        "spark.conf": {"spark.hadoop.fs.s3a.secret.key": {"env": "P"}},
    }
    settings = load(environ={"P": PLANTED}, overrides=overrides)
    cluster = settings.cluster()
    with log_lines():
        configure_logging("debug", "json")
        log = logger("settings")
        for shown in (settings, cluster, cluster.security, cluster.security.password, settings.spark):
            log.info("%s and %r", shown, shown)
        try:
            Admin(cluster.client_options()).partitions("orders", timeout=0.2)
        except LanewayError:
            log.exception("no answer")
        try:
            load(environ={"P": PLANTED}, overrides={**overrides, "clusters.main.security.mechanism": PLANTED})
        except SettingsError:
            log.exception("wrong")
    written = capsys.readouterr().err
    assert len(written.splitlines()) == 7
    assert PLANTED not in written
