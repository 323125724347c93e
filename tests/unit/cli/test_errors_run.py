"""`laneway errors run` answers mistakes before it asks any broker, and reports what was done."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from laneway._engines.spark import RunReport, SparkEngine
from laneway.cli._run import _summary_of_errors
from laneway.observe import Tally


@pytest.fixture
def laneway(errors_command, monkeypatch):
    """`laneway errors run` on an engine that only records what it gets; nothing is connected to."""
    ran = SimpleNamespace(report=RunReport("shop"), settings=None, topic=None)

    def run_errors(engine, app, *, topic):
        ran.settings, ran.topic, ran.app = engine._settings, topic, app.name
        return ran.report

    monkeypatch.setattr(SparkEngine, "run_errors", run_errors)

    def run(*words, app="app"):
        return errors_command("run", *words, app=app)

    run.ran = ran
    return run


@pytest.mark.parametrize(
    ("words", "app", "part"),
    [
        (["--topic", "nothing"], "app", "it has: orders.shop.error, returns.shop.error"),
        (["--stop-when-new", "5"], "app", "errors.stop_when_new"),
        (["--max-errors", "-1"], "app", "--max-errors"),
        (["--action", "drop"], "app", "--action"),
        ([], "empty", "has no handlers, so it parks nothing"),
        ([], "ap", "did you mean"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_option_ends_with_two(laneway, words, app, part):
    """The message says what there is, or how to write it."""
    code, out, err = laneway(*words, app=app)
    assert (code, out, laneway.ran.settings) == (2, "", None)
    assert part in err
    assert "Traceback" not in err


def test_flags_win_over_code_and_configuration(laneway, tmp_path):
    """What is not given is left to them."""
    (tmp_path / "laneway.yaml").write_text("default:\n  errors: {max_errors: 9, action: replay}\n")
    code, _out, _err = laneway("--stop-when-new", "90s", "--max-errors", "0", "--topic", "returns.shop.error")
    errors = laneway.ran.settings.errors
    assert (code, laneway.ran.topic, laneway.ran.app) == (0, "returns.shop.error", "shop")
    assert (errors.max_errors, errors.action, errors.stop_when_new.total_seconds()) == (0, "replay", 90)


def test_the_end_is_shown(laneway):
    """What was done in one line, that there was nothing to do, and by the exit code that it was forced."""
    code, out, _err = laneway()
    assert (code, out.splitlines()[-1]) == (0, "nothing to run: no parked record is open and old enough")
    laneway.ran.report = RunReport("shop", Tally(read=5, handled=3, skipped=1, parked=1), batches=1, was_forced=True)
    code, out, _err = laneway()
    assert (code, out.splitlines()[-1]) == (3, "5 read: 3 handled, 1 skipped, 1 parked")
    assert laneway("--quiet")[1] == ""


def test_the_runs_of_an_app_are_summed_up():
    """With those that failed or were left out, when there were any."""
    report = RunReport("shop")
    report.errors.runs, report.errors.failed, report.errors.left_out = 3, 1, 2
    report.errors.tally = Tally(read=4, handled=4)
    assert _summary_of_errors(report.errors) == (
        "runs over the error topics: 3, 1 failed, 2 left out; 4 read: 4 handled, 0 skipped, 0 parked"
    )
