"""What a handler may promise, and what is refused at its declaration."""

from __future__ import annotations

import pytest

from laneway import App, Retry, Topic
from laneway.dedup import MemoryDedup, OffsetDedup
from laneway.errors import DeclarationError

orders, store = Topic("orders"), MemoryDedup()


def route_of(app):
    return app.routes[0]


def test_a_store_means_effectively_once():
    """Of the handler, or of the app; a handler may leave that of its app."""
    app = App("shop", dedup=store)

    @app.handler(orders)
    def one(record): ...

    @app.handler(Topic("others"), guarantee="at_least_once")
    def two(record): ...

    first, second = app.routes
    assert (first.dedup, first.scope) == (store, "shop.one")
    assert (second.dedup, second.scope) == (None, "")


def test_an_app_that_only_offers_a_store():
    """With ``at_least_once`` for the app a handler still asks for more by its guarantee."""
    with pytest.raises(DeclarationError, match="has no effect"):
        App("shop", guarantee="at_least_once", dedup=store)
    app = App("shop", guarantee="effectively_once", dedup=store)

    @app.batch_handler(orders, size=5, guarantee="effectively_once")
    def many(batch): ...

    assert route_of(app).dedup is store


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"guarantee": "effectively_once"}, "needs dedup="),
        ({"guarantee": "exactly_once"}, "use 'at_least_once' or 'effectively_once'"),
        ({"guarantee": "at_least_once", "dedup": store}, "has no effect"),
        ({"dedup": "redis://localhost"}, "give a store of laneway.dedup"),
        ({"dedup": store, "processes": 2}, "remove processes"),
        ({"dedup": OffsetDedup("sqlite:x.db"), "lanes": 4}, "lanes=1"),
    ],
)
def test_what_cannot_work_is_refused(options, text):
    """Each with what to write instead."""
    with pytest.raises(DeclarationError, match=text):
        App("shop").handler(orders, **options)(lambda record: None)


@pytest.mark.parametrize("kind", ["unique", "columnar"])
def test_kinds_that_cannot_honour_it_are_refused(kind):
    """An app's store reaches every handler, so such a handler belongs into another app."""
    app = App("shop", dedup=store)
    declare = app.unique_handler(orders, size=5) if kind == "unique" else app.columnar_handler(orders)
    with pytest.raises(DeclarationError, match="cannot be effectively_once"):
        declare(lambda batch: None)


def test_batches_of_offsets_are_in_the_order_of_the_partition():
    """Two batches of one partition at once could leave a gap below the next offset."""
    app = App("shop", dedup=OffsetDedup("sqlite:x.db"))

    @app.batch_handler(orders, size=5, lanes=4, retry=Retry.steps("1s"))
    def many(batch): ...

    assert route_of(app).kept_order == "partition"
