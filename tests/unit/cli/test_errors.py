"""`laneway errors` answers mistakes before it asks any broker."""

from __future__ import annotations

import signal
import socket

import pytest
import typer

from laneway.admin import _error_log as _log
from laneway.cli._errors_redrive import _watching


@pytest.fixture
def laneway(errors_command):
    """The command, with the address of brokers that are missing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    errors_command.brokers = f"127.0.0.1:{port}"
    return errors_command


@pytest.mark.parametrize("verb", ["list", "replay", "drop"])
@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--since", "soon"], "--since 'soon' is not a time; write an age (90s, 2h, 1d)"),
        (["--since", "1h", "--until", "2h"], "nothing can match"),
        (["--key", "hex:xyz"], "pairs of hexadecimal digits"),
        (["--at", "17"], "write partition:offset, for example 0:17"),
        (["--limit", "0"], "--limit"),
        (["--topic", "nothing"], "it has: orders.shop.error, returns.shop.error"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_option_ends_with_two(laneway, verb, words, part):
    """The message shows how to write it, and no broker is asked."""
    code, out, err = laneway(verb, *words, *([] if verb == "list" else ["--yes"]))
    assert (code, out) == (2, "")
    assert part in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["x"], "write partition:offset, for example 0:17"),
        (["0:1"], "add --topic orders.shop.error or --topic returns.shop.error"),
    ],
)
def test_show_needs_to_know_which_record(laneway, words, part):
    """A place, and a topic when there are several."""
    code, _out, err = laneway("show", *words)
    assert code == 2
    assert part in err


@pytest.mark.parametrize(("app", "part"), [("ap", "did you mean"), ("empty", "has no handlers, so it parks nothing")])
def test_an_app_that_parks_nothing_is_refused(laneway, app, part):
    """There is no such app, or it has no handlers."""
    code, _out, err = laneway("list", app=app)
    assert code == 2
    assert part in err


@pytest.mark.parametrize("verb", ["replay", "drop"])
def test_without_a_terminal_there_is_no_question(laneway, verb, monkeypatch):
    """The command refuses before it looks for brokers, and names the two ways out."""
    code, _out, err = laneway(verb)
    assert code == 2
    assert "add --yes" in err
    assert "--dry-run" in err


@pytest.mark.parametrize(
    "words", [["list"], ["list", "--json"], ["replay", "--yes"], ["replay", "--dry-run"], ["drop", "--yes"]]
)
def test_absent_brokers_are_named(laneway, words, monkeypatch):
    """Exit code 1 and the address, without a traceback."""
    monkeypatch.setattr(_log, "_PATIENCE", 0.2)
    code, _out, err = laneway(*words, "--topic", "orders.shop.error", "--brokers", laneway.brokers)
    assert code == 1
    assert f"no answer from Kafka at {laneway.brokers}" in err
    assert "Traceback" not in err


def test_the_first_signal_asks_and_the_second_ends(capsys):
    """What is under way is finished after the first; after the second nothing is waited for."""
    with _watching("replay", 1) as watcher:
        assert not watcher.is_stopping
        signal.raise_signal(signal.SIGINT)
        assert watcher.is_stopping
    before = signal.getsignal(signal.SIGINT)

    def twice():
        with _watching("replay", 1):
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(typer.Exit) as ended:
        twice()

    assert (ended.value.exit_code, signal.getsignal(signal.SIGINT)) == (130, before)
    assert "nothing is lost" in capsys.readouterr().err
