"""What the configuration changes about handlers, and what it may not."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from laneway import App, GroupedBy, Retry, Topic
from laneway._runtime.configure import configured
from laneway.errors import DeclarationError, SettingsError
from laneway.settings import load

if TYPE_CHECKING:
    from pathlib import Path

SECOND = timedelta(seconds=1)


def an_app(kind="handler", topic="orders", name="charge", **fields):
    app = App("billing")
    return with_handler(app, kind, topic, name, **fields)


def with_handler(app, kind="handler", topic="orders", name="refund", **fields):
    def handle(_): ...

    handle.__name__ = name
    needed = {"custom_handler": {"kind": GroupedBy("customer"), "size": 10}, "handler": {}}
    getattr(app, kind)(Topic(topic), **(needed.get(kind, {"size": 10}) | fields))(handle)
    return app


def settings_of(path: Path, *lines: str, environ=None):
    """Settings of a file whose third line is the first one given."""
    file = path / "laneway.yaml"
    file.write_text("default:\n  handlers:\n" + "".join(f"    {line}\n" for line in lines))
    return load(file, environ=environ or {})


def problems_of(app, settings):
    with pytest.raises(SettingsError) as caught:
        configured(app, settings)
    return [(problem.line, problem.key, problem.message, problem.fix) for problem in caught.value.problems]


def test_steps_mode_and_delay_can_be_set(tmp_path):
    """What the code says about the rest of its policy is kept."""
    app = an_app(retry=Retry(2, "9s", retriable=OSError))
    settings = settings_of(tmp_path, "charge: {retry_steps: [5s, 1m], retry_mode: ordered, delay: 10m, attempts: 3}")

    (route,) = configured(app, settings).routes

    assert route.retry == Retry(3, "9s", delays=(5 * SECOND, 60 * SECOND), mode="ordered", retriable=OSError)
    assert (route.retry.hops, route.delay) == (2, 600 * SECOND)
    assert configured(app, settings.with_overrides({"drain": "1s"})).routes[0].retry == route.retry


@pytest.mark.parametrize(
    ("declared", "line", "expected"),
    [
        (None, "retry_steps: [5s]", Retry.steps("5s")),
        (None, "retry_steps: 5s", Retry.steps("5s")),
        (Retry.steps("9s", mode="ordered"), "retry_steps: [5s]", Retry.steps("5s", mode="ordered")),
        (Retry.steps("9s", mode="ordered"), "retry_mode: BLOCKING", Retry.steps("9s", mode="blocking")),
        (Retry.steps("9s"), "retry_steps: []", Retry(mode="unordered")),
        (None, "{}", Retry()),
    ],
)
def test_the_code_and_the_configuration_together_give_the_steps(tmp_path, declared, line, expected):
    """Steps alone have the mode that `Retry.steps` has; an empty list takes them away."""
    line = line if line == "{}" else f"{{{line}}}"

    assert configured(an_app(retry=declared), settings_of(tmp_path, f"charge: {line}")).routes[0].retry == expected


def test_steps_can_be_set_by_a_variable(tmp_path):
    """As a text with commas."""
    settings = settings_of(tmp_path, "charge: {}", environ={"LANEWAY__HANDLERS__CHARGE__RETRY_STEPS": "5s, 1m"})

    assert configured(an_app(), settings).routes[0].retry == Retry.steps("5s", "1m")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("retry_steps: [soon]", "'soon' is not a duration"),
        ("retry_steps: [5]", "has no unit"),
        ("retry_steps: [5s, -1s]", "is not a duration"),
        (f"retry_steps: [{', '.join(['1s'] * 21)}]", "21 steps are given, each of which is a topic"),
        ("retry_mode: later", "'later' is not one of"),
        ("delay: 600", "has no unit"),
        ("delay: 400d", "is out of range"),
    ],
)
def test_values_that_the_code_could_not_give_are_refused(tmp_path, value, message):
    """With file, line, key and fix, before anything runs."""
    with pytest.raises(SettingsError) as caught:
        settings_of(tmp_path, "charge:", f"  {value}")

    (problem,) = caught.value.problems
    assert (problem.line, problem.key.partition("[")[0]) == (4, f"handlers.charge.{value.partition(':')[0]}")
    assert message in problem.message
    assert problem.fix


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("handler", {"size": "5", "within": "2s"}),
        ("columnar_handler", {"lanes": "5", "order": "none", "timeout": "2s", "within": "2s", "strict": "true"}),
    ],
)
def test_a_setting_without_effect_is_refused(tmp_path, kind, keys):
    """Each with its own line, and what to write instead."""
    settings = settings_of(tmp_path, "charge:", *[f"  {key}: {value}" for key, value in keys.items()])

    found = problems_of(an_app(kind), settings)

    assert [line for line, *_ in found] == list(range(4, 4 + len(keys)))
    assert {key for _, key, *_ in found} == {f"handlers.charge.{key}" for key in keys}
    assert all(message.startswith("it has no effect: ") and "batch_handler" in fix for *_, message, fix in found)


@pytest.mark.parametrize("kind", ["batch_handler", "unique_handler", "custom_handler"])
def test_what_has_an_effect_on_batches_may_be_set(tmp_path, kind):
    """Their size and lanes alike."""
    settings = settings_of(tmp_path, "charge: {size: 5, within: 2s, lanes: 3, timeout: 1s, order: none}")

    (route,) = configured(an_app(kind), settings).routes

    assert (route.size, route.within, route.lanes, route.timeout) == (5, 2 * SECOND, 3, SECOND)


def test_the_size_of_a_table_may_be_set(tmp_path):
    """It is what a columnar handler is called with."""
    assert configured(an_app("columnar_handler"), settings_of(tmp_path, "charge: {size: 5}")).routes[0].size == 5


def test_a_handler_that_is_switched_off_is_not_looked_at(tmp_path):
    """It has no effect at all."""
    app = with_handler(an_app())

    assert len(configured(app, settings_of(tmp_path, "charge: {enabled: false, size: 5}")).routes) == 1


@pytest.mark.parametrize(
    ("kind", "lines", "key", "message", "fix"),
    [
        ("handler", ["  retry_mode: ordered"], "retry_mode", "the handler has no steps", "retry_steps: [5s, 1m]"),
        (
            "columnar_handler",
            ["  retry_mode: ordered", "  retry_steps: [5s]"],
            "retry_mode",
            "a columnar handler takes tables",
            "use mode='unordered'",
        ),
        ("columnar_handler", ["  processes: 2"], "processes", "Arrow computes on tables", "remove processes"),
        ("handler", ["  error_topic: orders"], "error_topic", "the error topic is also the source topic", ""),
    ],
)
def test_what_the_code_could_not_declare_is_refused(tmp_path, kind, lines, key, message, fix):
    """Once, it was refused too, but without a word on where it was written."""
    ((line, found, words, what_to_do),) = problems_of(an_app(kind), settings_of(tmp_path, "charge:", *lines))

    assert (line, found) == (4, f"handlers.charge.{key}")
    assert message in words
    assert fix in what_to_do


@pytest.mark.parametrize(
    ("lines", "key", "message"),
    [
        (["refund:", "  retry_steps: [5s]"], "handlers.refund.retry_steps", "have the same retry topic"),
        (["refund:", "  delay: 5s"], "handlers.refund.delay", "read the same topic with different delays"),
    ],
)
def test_handlers_that_do_not_fit_together_any_more_are_refused(tmp_path, lines, key, message):
    """Two handlers of one topic, of which the configuration changes one."""
    app = with_handler(an_app(retry=Retry.steps("5s")))

    ((line, found, words, fix),) = problems_of(app, settings_of(tmp_path, *lines))

    assert (line, found) == (4, key)
    assert message in words
    assert fix


def test_a_fault_of_the_code_is_not_put_on_the_configuration(tmp_path):
    """It was there before."""
    app = with_handler(an_app(retry=Retry.steps("5s")), retry=Retry.steps("5s"))

    with pytest.raises(DeclarationError, match="have the same retry topic"):
        configured(app, settings_of(tmp_path, "refund: {lanes: 3}"))


def test_a_problem_names_the_variable_it_comes_from():
    """There is no line then."""
    settings = load(environ={"LANEWAY__HANDLERS__CHARGE__SIZE": "5"})

    with pytest.raises(
        SettingsError, match=r"LANEWAY__HANDLERS__CHARGE__SIZE: handlers\.charge\.size: it has no effect"
    ):
        configured(an_app(), settings)
