"""What clients that read for handlers are told."""

from __future__ import annotations

import pytest

from laneway import App, Buffer, Topic
from laneway._runtime.configure import reading_options
from laneway.settings import load


def options(partitions=4, readers=1, **consumer):
    app = App("billing")
    app.handler(Topic("orders"), buffer=Buffer(8_000, "8MiB"))(print)
    overrides = {f"clusters.main.consumer.{name}": value for name, value in consumer.items()}
    return reading_options(load(overrides=overrides).cluster(), list(app.routes), partitions, readers)


def test_the_buffers_of_the_handlers_bound_what_is_read_ahead():
    """Over all partitions that one client reads."""
    made = options(partitions=4, readers=2)
    assert (made["queued.min.messages"], made["queued.max.messages.kbytes"]) == (4_000, 4 * 1024)
    assert options(partitions=100)["queued.max.messages.kbytes"] == 1024


@pytest.mark.parametrize(("size", "kilobytes"), [("2MiB", 512), ("64MiB", 16 * 1024), ("1KiB", 1)])
def test_consumer_buffer_size_is_what_one_client_reads_ahead(size, kilobytes):
    """It wins over the buffers of the handlers, for all partitions of a client together."""
    assert options(buffer_size=size)["queued.max.messages.kbytes"] == kilobytes


def test_fetch_max_size_reaches_the_client():
    """As it is given; without it a mebibyte."""
    assert options(fetch_max_size="3MiB")["fetch.message.max.bytes"] == 3 * 2**20
    assert options()["fetch.message.max.bytes"] == 2**20
