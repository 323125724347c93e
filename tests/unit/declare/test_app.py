"""Declarations: what is collected, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from laneway import App, Buffer, DirectEngine, Retry, SparkEngine, Topic
from laneway.errors import DeclarationError
from support.core import make_route

ORDERS = Topic("orders")


def charge(record):
    """A handler."""


async def charge_async(record):
    """An async handler."""


class AsyncCall:
    async def __call__(self, record):
        """An object as a handler."""


def test_a_handler_stays_as_it_is():
    """The decorator gives back the function itself."""
    app = App("billing")

    assert app.handler(ORDERS)(charge) is charge
    assert app.batch_handler(ORDERS, size=5)(charge_async) is charge_async
    assert [(route.name, route.kind) for route in app.routes] == [("charge", "single"), ("charge_async", "batch")]


def test_a_handler_has_careful_defaults():
    """One lane, one attempt, no time limit, key order."""
    app = App("billing")
    app.handler(ORDERS)(charge)
    (route,) = app.routes

    assert (route.lanes, route.retry, route.timeout, route.order, route.strict) == (1, Retry(), None, "key", False)
    assert route.buffer == Buffer(20_000, "64MiB")
    assert route.error_topic_of("billing") == "orders.billing.error"


def test_what_is_declared_is_kept():
    """Durations are parsed, everything else stays."""
    app = App("billing")
    app.batch_handler(ORDERS, size=7, within="2s", lanes=3, timeout="5s", retry=Retry(2))(charge)
    app.columnar_handler(Topic("clicks"), size=9)(print)
    batch, columnar = app.routes

    assert (batch.size, batch.within, batch.lanes) == (7, timedelta(seconds=2), 3)
    assert (batch.timeout, batch.retry) == (timedelta(seconds=5), Retry(2))
    assert (columnar.kind, columnar.size, columnar.buffer.records) == ("columnar", 9, 9)


@pytest.mark.parametrize(
    ("lanes", "kind", "order", "expected"),
    [
        (0, "single", "key", "partition"),
        (1, "single", "none", "partition"),
        (2, "single", "key", "key"),
        (1, "batch", "key", "key"),
        (2, "single", "none", "none"),
    ],
)
def test_one_lane_keeps_the_order_of_the_partition(lanes, kind, order, expected):
    """With no more than one lane a partition is worked through one record at a time."""
    assert expected == make_route(lanes=lanes, kind=kind, order=order).kept_order


@pytest.mark.parametrize(("function", "expected"), [(charge, False), (charge_async, True), (AsyncCall(), True)])
def test_async_handlers_are_known(function, expected):
    """Functions and objects whose call is async count."""
    assert expected == make_route(function).is_async


def test_an_object_is_named_after_its_class():
    """What has no name of its own takes its type's."""
    app = App("billing")
    app.handler(ORDERS)(partial(charge))

    assert app.routes[0].name == "partial"


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a/b", "../x", "é", "x" * 201, "a\n"])
def test_app_names_that_cannot_be_a_group_are_refused(name):
    """The name becomes a group id and part of a path."""
    with pytest.raises(DeclarationError, match="use 1 to 200 letters, digits"):
        App(name)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lanes": -1}, "handler 'charge': lanes=-1; lanes is 0 or more"),
        ({"order": "random"}, "handler 'charge': order='random'; use 'key', 'partition' or 'none'"),
        ({"timeout": "soon"}, "timeout: 'soon' is not a duration"),
        ({"timeout": 5}, "timeout: 5 has no unit"),
    ],
)
def test_a_handler_that_cannot_work_is_refused(fields, message):
    """The message names the handler or the field, and what it may be."""
    with pytest.raises(DeclarationError) as caught:
        App("billing").handler(ORDERS, **fields)(charge)

    assert message in str(caught.value)


def test_a_batch_of_nothing_is_refused():
    """A batch holds at least one record, and within is a duration."""
    with pytest.raises(DeclarationError, match="size=0; a batch holds at least 1 record"):
        App("billing").batch_handler(ORDERS, size=0)(charge)
    with pytest.raises(DeclarationError, match="within: 3 has no unit"):
        App("billing").batch_handler(ORDERS, size=1, within=3)(charge)


def test_a_columnar_handler_is_a_plain_function():
    """Async gains nothing on a table."""
    with pytest.raises(DeclarationError, match="a columnar handler is a plain def"):
        App("billing").columnar_handler(ORDERS)(charge_async)


def test_what_is_not_a_function_is_refused():
    """The message shows what was given."""
    with pytest.raises(DeclarationError, match="5 is not a function"):
        App("billing").handler(ORDERS)(5)


def test_two_handlers_have_two_names():
    """A configuration speaks of handlers by name."""
    app = App("billing")
    app.handler(ORDERS)(charge)
    with pytest.raises(DeclarationError, match="app 'billing' already has a handler named 'charge'"):
        app.handler(Topic("other"))(charge)


def test_an_error_topic_is_another_topic():
    """A failed record would come back forever."""
    with pytest.raises(DeclarationError, match="the error topic is also the source topic"):
        make_route().with_changes(error_topic="orders")


def test_a_batch_fits_its_buffer():
    """A buffer smaller than a batch would never fill one."""
    app = App("billing")
    app.batch_handler(ORDERS, size=50, buffer=Buffer(10, "1MiB"))(charge)

    assert app.routes[0].buffer == Buffer(50, "1MiB")


def test_a_configuration_changes_a_copy():
    """Fields and topic names are replaced in the copy, the original stays."""
    app = App("billing")
    app.handler(ORDERS)(charge)
    app.setup(print)
    app.cleanup(repr)
    copy = app.configured({"charge": {"lanes": 9}}, {"orders": "prod.orders"})

    assert (copy.routes[0].lanes, copy.routes[0].topic.name) == (9, "prod.orders")
    assert (app.routes[0].lanes, app.routes[0].topic.name) == (1, "orders")
    assert (copy.setups, copy.cleanups) == ((print,), (repr,))
    assert repr(copy) == "App('billing')"


def test_a_configuration_of_an_unknown_handler_is_refused():
    """The message lists the handlers there are."""
    app = App("billing")
    app.handler(ORDERS)(charge)
    with pytest.raises(DeclarationError, match="app 'billing' has no handler pay; it has: charge"):
        app.configured({"pay": {}}, {})


def test_a_configuration_is_checked_like_code():
    """What code may not declare, a configuration may not either."""
    app = App("billing")
    app.handler(ORDERS)(charge)
    with pytest.raises(DeclarationError, match="lanes=-1"):
        app.configured({"charge": {"lanes": -1}}, {})


def test_a_run_is_the_engines():
    """The app hands itself over and gives back what the engine says."""

    class Engine:
        def run(self, app):
            return ("ran", app)

    app = App("billing")
    assert app.run(Engine()) == ("ran", app)


@pytest.mark.parametrize(
    ("file", "variable", "expected"),
    [
        (None, None, SparkEngine),
        ("direct", None, DirectEngine),
        (None, "direct", DirectEngine),
        ("direct", "spark", SparkEngine),
    ],
)
def test_a_run_follows_the_configuration(file, variable, expected, tmp_path, monkeypatch):
    """Once, it was on Spark whatever the file or the environment said; its settings are those of the engine."""
    ran = []
    for engine in (SparkEngine, DirectEngine):
        monkeypatch.setattr(engine, "run", lambda engine, app: ran.append((type(engine), engine._settings, app)))
    monkeypatch.chdir(tmp_path)
    if file:
        (tmp_path / "laneway.yaml").write_text(f"default:\n  engine: {file}\n  drain: 7s\n")
    if variable:
        monkeypatch.setenv("LANEWAY_ENGINE", variable)
    app = App("billing")

    app.run()

    ((engine, settings, given),) = ran
    assert (engine, given) == (expected, app)
    assert settings.drain == timedelta(seconds=7 if file else 30)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"records": 0}, "Buffer(records=0): at least 1 record must fit"),
        ({"size": "big"}, "Buffer: 'big' is not a size"),
        ({"size": -1}, "Buffer: -1 is negative"),
    ],
)
def test_a_buffer_that_cannot_hold_anything_is_refused(fields, message):
    """The message names the field."""
    with pytest.raises(DeclarationError) as caught:
        Buffer(**fields)

    assert message in str(caught.value)


def test_the_size_of_a_buffer_is_bytes():
    """However it is written, it is kept as a number."""
    assert Buffer(size="1KiB") == Buffer(size=1024)


LADDER = Retry.steps("5s", "1m")


def again(record):
    """Stands in for a handler."""


def laddered(retry=LADDER, **fields):
    """An app whose one handler has a ladder."""
    app = App("billing", **fields)
    app.handler(ORDERS, lanes=4, retry=retry)(charge)
    return app


def test_patterns_are_for_all_handlers_of_an_app():
    """Names of topics and style of headers are said once."""
    app = App("billing", error_topic="dlq.{topic}", retry_topic="{topic}.{handler}.{step}", error_headers="spring")
    app.handler(ORDERS, retry=LADDER)(charge)
    app.batch_handler(Topic("clicks"), size=5)(again)

    assert [route.error_topic_of("billing") for route in app.routes] == ["dlq.orders", "dlq.clicks"]
    assert app.routes[0].retry_topics_of("billing") == ["orders.charge.1", "orders.charge.2"]
    assert {route.error_headers for route in app.routes} == {"spring"}


def test_a_configured_copy_keeps_the_patterns():
    """The names follow the real name of the topic."""
    app = laddered(error_topic="dlq.{topic}", retry_topic="{topic}-{step}", error_headers="connect")
    (route,) = app.configured({}, {"orders": "prod.orders"}).routes

    assert route.error_topic_of("billing") == "dlq.prod.orders"
    assert route.retry_topics_of("billing") == ["prod.orders-1", "prod.orders-2"]
    assert route.error_headers == "connect"


@pytest.mark.parametrize("style", ["Spring", "", "kafka", None])
def test_a_style_that_does_not_exist_is_refused(style):
    """The message lists those there are."""
    with pytest.raises(DeclarationError) as caught:
        App("billing", error_headers=style)

    assert f"App(error_headers={style!r}): use 'laneway', 'spring', 'connect'" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"error_topic": "{topic}"}, "handler 'charge': the error topic is also the source topic"),
        ({"retry_topic": "{topic}-again"}, "handler 'charge': two of its retry and error topics have the same name"),
        ({"retry_topic": "{nothing}"}, "there is no {nothing}"),
    ],
)
def test_patterns_that_cannot_work_are_refused_with_the_handler(fields, message):
    """When the handler is declared, not when its first record fails."""
    with pytest.raises(DeclarationError) as caught:
        laddered(**fields)

    assert message in str(caught.value)


def test_a_columnar_handler_may_have_a_ladder_but_not_park():
    """The message says what to use instead."""
    app = App("billing")
    app.columnar_handler(ORDERS, retry=LADDER)(charge)
    assert app.routes[0].retry_topics_of("billing") == ["orders.billing.retry.1", "orders.billing.retry.2"]

    with pytest.raises(
        DeclarationError, match=r"handler 'again': mode='ordered' follows single records.*use mode='unordered'"
    ):
        app.columnar_handler(ORDERS, retry=Retry.steps("5s", mode="ordered"))(again)


@pytest.mark.parametrize("of", [charge, "charge"])
def test_a_retry_handler_stands_in_on_every_step(of):
    """The handler may be given itself or by name; on the source topic it is still called."""
    app = laddered()

    assert app.retry_handler(of)(again) is again
    (route,) = app.routes
    assert [route.at_step("billing", step).function for step in range(3)] == [charge, again, again]


def test_a_retry_handler_may_be_for_one_step():
    """The last one that was declared for a step counts, and the others stay."""
    app = laddered()
    app.retry_handler(charge)(again)
    app.retry_handler(charge, step=2)(charge_async)
    (route,) = app.routes

    assert [route.at_step("billing", step).function for step in range(3)] == [charge, again, charge_async]
    assert [route.at_step("billing", step).is_async for step in range(3)] == [False, False, True]


def test_a_configured_copy_keeps_its_retry_handlers():
    """They belong to the handler, whatever else of it is changed."""
    app = laddered()
    app.retry_handler(charge)(again)
    (route,) = app.configured({"charge": {"lanes": 9}}, {"orders": "prod.orders"}).routes

    assert route.at_step("billing", 1).function is again
    assert route.at_step("billing", 1).topic.name == "prod.orders.billing.retry.1"


@pytest.mark.parametrize(
    ("retry", "step", "message"),
    [
        (LADDER, 3, "handler 'charge' has no retry topic of step 3; its steps come from retry=Retry.steps("),
        (LADDER, -1, "handler 'charge' has no retry topic of step -1"),
        (Retry(5), None, "handler 'charge' has no retry topic of step 1"),
        (Retry.steps("5s", mode="blocking"), 1, 'with mode="unordered" or mode="ordered"'),
    ],
)
def test_a_retry_handler_of_a_step_that_is_not_there_is_refused(retry, step, message):
    """It would never be called."""
    with pytest.raises(DeclarationError) as caught:
        laddered(retry).retry_handler(charge, step=step)(again)

    assert message in str(caught.value)


@pytest.mark.parametrize("of", ["pay", again, "Charge", None])
def test_a_retry_handler_of_an_unknown_handler_is_refused(of):
    """The message lists the handlers there are."""
    with pytest.raises(DeclarationError, match=r"app 'billing' has no handler .*; it has: charge"):
        laddered().retry_handler(of)(again)
    with pytest.raises(DeclarationError, match="it has: none"):
        App("billing").retry_handler(of)(again)


def test_processes_are_for_functions_that_compute():
    """An async or columnar handler has nothing to do in them, and less than none makes no sense."""
    app, topic = App("billing"), Topic("orders")
    app.handler(topic, processes=2)(print)
    assert app.routes[0].processes == 2

    async def wait(record): ...

    with pytest.raises(DeclarationError, match="remove processes"):
        app.handler(topic, processes=2)(wait)
    with pytest.raises(DeclarationError, match="processes=-1"):
        app.handler(topic, processes=-1)(len)
