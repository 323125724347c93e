"""The user's own function that says whether records may be handled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from laneway import App
from laneway._runtime.health.check import HealthCheck, check_function
from laneway._runtime.host import AppHost
from laneway.errors import SettingsError
from laneway.settings import load
from support.waiting import eventually


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def answered(function, **rest):
    """The first answer of a check."""
    check = HealthCheck(function, None, every=0.01, **rest)
    first = check.trouble
    check.start()
    try:
        return eventually(lambda: (check.trouble != first and [check.trouble]) or None, timeout=20)[0]
    finally:
        check.end()


def test_a_check_that_has_not_answered_says_so():
    """Until it has said yes, nothing is read."""
    assert HealthCheck(lambda: True, None).trouble == "the check '<lambda>' has not answered yet"


@pytest.mark.parametrize("answer", [True, None, 1, "ready"])
def test_a_check_that_is_content(answer):
    """Anything true, and a function that returns nothing and raises nothing."""
    assert answered(lambda: answer) is None


def test_a_check_that_says_no_or_raises():
    """Both are told with its name."""

    def bank():
        raise ConnectionError("no\nroute")

    assert answered(lambda: False) == "the check '<lambda>' returned false"
    assert answered(bank) == "the check 'bank' failed: ConnectionError: no route"


def test_a_check_that_hangs_counts_as_no_and_recovers(gate):
    """Nobody waits for it; once it answers, that counts."""
    gate.set()

    def bank():
        return gate.wait(30)

    check = HealthCheck(bank, None, every=0.01, timeout=0.2)
    check.start()
    eventually(lambda: check.trouble is None, timeout=20)
    gate.clear()
    assert "has not answered for" in eventually(lambda: check.trouble, timeout=20)
    gate.set()
    eventually(lambda: check.trouble is None, timeout=20)
    check.end()


def test_an_async_check_runs_on_the_loop_and_has_a_limit():
    """Its answer counts as that of a plain one, and a task that takes too long is cancelled."""
    host, cancelled, answers = AppHost(App("shop")), threading.Event(), [True]

    async def bank():
        if answers[0] is None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
        return answers[0]

    check = HealthCheck(bank, host, every=0.01, timeout=0.3)
    check.start()
    try:
        eventually(lambda: check.trouble is None, timeout=20)
        answers[0] = None
        assert cancelled.wait(20)
        eventually(lambda: "no answer within 0.3s" in (check.trouble or ""), timeout=20)
    finally:
        answers[0] = True
        check.end()
        check._thread.join(20)
        host.close()


def test_an_async_check_without_a_loop_of_handlers_has_one_of_its_own():
    """On Spark no handler runs in the driver; every call of the check is on the same loop, so it may keep a pool."""
    loops, answers = [], [True]

    async def bank():
        loops.append(asyncio.get_running_loop())
        if answers[0] is None:
            await asyncio.sleep(60)
        return answers[0]

    check = HealthCheck(bank, None, every=0.01, timeout=0.3)
    check.start()
    try:
        eventually(lambda: check.trouble is None and len(loops) > 2, timeout=20)
        assert len(set(map(id, loops))) == 1
        answers[0] = None
        eventually(lambda: "no answer within 0.3s" in (check.trouble or ""), timeout=20)
    finally:
        check.end()


def answers_well():
    """A check that a configuration can name."""
    return True


def test_a_configuration_names_a_check():
    """As module and function; without it there is none."""
    assert check_function(load()) is None
    assert check_function(load(overrides={"health.check": f"{__name__}:answers_well"})) is answers_well


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("no_such_module:ready", "module 'no_such_module' cannot be imported: ModuleNotFoundError"),
        ("os.path:no_such_function", "module 'os.path' has no function 'no_such_function'"),
        ("os:sep", "module 'os' has no function 'sep'"),
    ],
)
def test_a_check_that_is_not_there_is_a_problem_of_its_line(tmp_path, named, words):
    """With file and line, as for any setting."""
    path = tmp_path / "laneway.yaml"
    path.write_text(f"default:\n  engine: direct\n  health:\n    check: {named}\n")
    with pytest.raises(SettingsError) as caught:
        check_function(load(path))
    assert words in str(caught.value)
    assert f"{path}:4" in str(caught.value)
