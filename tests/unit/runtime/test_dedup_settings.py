"""What a configuration changes about dedup stores."""

from __future__ import annotations

import textwrap

import pytest

from laneway import App, Topic, by_header
from laneway._runtime.configure import configured
from laneway._runtime.dedup_stores import check_stores
from laneway.dedup import MemoryDedup, OffsetDedup, PostgresDedup, RedisDedup, SqliteDedup
from laneway.errors import DeclarationError, SettingsError
from laneway.settings import load

orders = Topic("orders")


def app_with(**options):
    app = App("shop")
    app.handler(orders, **options)(pay)
    return app


def pay(record): ...


def settings_of(tmp_path, text, **environ):
    lines = textwrap.indent(textwrap.dedent(text).strip(), "  ")
    (tmp_path / "laneway.yaml").write_text(f"default:\n{lines}\n")
    return load(tmp_path / "laneway.yaml", environ=environ)


def test_a_configuration_can_turn_it_on(tmp_path):
    """Store, source of ids, times and policy; the handler is as it was declared."""
    settings = settings_of(
        tmp_path,
        """
        dedup: {store: {env: STORE}, id: "header:event-id", ttl: 30d, lease: 5s, on_outage: continue}
        handlers: {pay: {guarantee: effectively_once}}
        """,
        STORE="postgresql://shop:secret@db/shop",
    )
    [route] = configured(app_with(), settings).routes
    store = route.dedup
    assert isinstance(store, PostgresDedup)
    assert (store.ttl.days, store.lease.seconds, store.on_outage) == (30, 5, "continue")
    assert store.id(orders.record(b"x", headers=[("event-id", b"7")])) == b"7"
    assert route.scope == "shop.pay"
    assert "shop:secret" not in str(settings.dump())


def test_it_replaces_the_store_and_keeps_what_it_does_not_name(tmp_path):
    """A test environment has another store than the code names."""
    declared = RedisDedup("redis://prod", id=by_header("id"), ttl="1d")
    settings = settings_of(tmp_path, "dedup: {store: 'sqlite:ids.db', lease: 9s}")
    [route] = configured(app_with(dedup=declared), settings).routes
    assert isinstance(route.dedup, SqliteDedup)
    assert (route.dedup.id, route.dedup.ttl.days, route.dedup.lease.seconds) == (declared.id, 1, 9)


def test_it_changes_options_alone(tmp_path):
    """The store stays, with another time and other ids."""
    declared = SqliteDedup("ids.db", id=by_header("id"))
    settings = settings_of(tmp_path, "dedup: {ttl: 2d}\nhandlers: {pay: {dedup_id: 'field:order.id'}}")
    [route] = configured(app_with(dedup=declared), settings).routes
    assert route.dedup == declared
    assert (route.dedup.ttl.days, declared.ttl.days) == (2, 7)
    assert route.dedup.id(orders.record(b'{"order": {"id": 4}}')) == b"4"


def test_it_can_turn_it_off(tmp_path):
    """``at_least_once`` for a handler that has a store in the code."""
    settings = settings_of(tmp_path, "handlers: {pay: {guarantee: at_least_once}}")
    [route] = configured(app_with(dedup=MemoryDedup()), settings).routes
    assert route.dedup is None


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("handlers: {pay: {guarantee: effectively_once}}", {}, "there is no dedup store"),
        ("handlers: {pay: {guarantee: exactly_once}}", {}, "at_least_once"),
        ("handlers: {pay: {dedup_id: origin}}", {}, "it has no effect"),
        ("handlers: {pay: {dedup_id: origin}}", {"dedup": OffsetDedup("sqlite:x.db")}, "needs no ids"),
        ("dedup: {id: event-id}", {}, "header:event-id"),
        (
            "dedup: {store: 'mysql://db'}\nhandlers: {pay: {guarantee: effectively_once}}",
            {},
            "address of a dedup store",
        ),
    ],
)
def test_a_configuration_that_cannot_work_says_why(tmp_path, text, options, message):
    """File, line and what to write instead."""
    with pytest.raises((SettingsError, DeclarationError), match=message):
        configured(app_with(**options), settings_of(tmp_path, text))


def test_the_memory_of_one_process_is_refused_on_spark():
    """Its workers are several processes, each with a memory of its own."""
    app = app_with(dedup=MemoryDedup())
    check_stores(app, is_one_process=True)
    with pytest.raises(DeclarationError, match="memory of one process"):
        check_stores(app, is_one_process=False)


def test_a_store_that_does_not_answer_is_waited_for(caplog):
    """Its records wait; the start says so and goes on."""
    check_stores(app_with(dedup=RedisDedup("redis://127.0.0.1:1")), is_one_process=True)
    assert "records wait until it answers" in caplog.text
