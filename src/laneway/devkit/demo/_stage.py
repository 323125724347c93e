"""Runs the demo: broker, topics, run, check."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from laneway._engines.spark import LagReader, SparkEngine
from laneway._kafka import Admin, AssignedConsumer, OffsetRange, produce_many
from laneway.devkit.broker import ephemeral
from laneway.devkit.demo._app import CALL, app, charge, orders, receipts
from laneway.devkit.demo._calls import VARIABLE, Calls
from laneway.devkit.demo._figures import Figures, Found, judge
from laneway.devkit.demo._orders import Mix, make_orders
from laneway.errors import EngineError, LanewayError
from laneway.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laneway.observe import Listener

__all__ = ["PARTITIONS", "Interrupted", "Show", "perform"]

PARTITIONS = 12
_STEP = 500  # records between two updates of the progress bar, which cost more than a record
_READ_LIMIT = 30.0  # seconds to read the error topic
_QUIET = {"log_level": 0}
"""Silences the client's log: a broker that starts or stops would fill the terminal with harmless lines."""


class Interrupted(Exception):  # noqa: N818 - a signal, not an error
    """The run was stopped early; everything that it started has ended."""


class Show(Protocol):
    """The output of the demo."""

    def say(self, text: str) -> None:
        """Print one line."""

    def bar(self, text: str) -> AbstractContextManager[Callable[[str, int, int], None]]:
        """A progress bar, updated with stage, done and total."""

    def watch(self, *, lag: LagReader, source: Calls, total: int, ideal: float) -> AbstractContextManager[Listener]:
        """A live view of the run."""


def perform(records: int, lanes: int, show: Show) -> Figures:
    """Run the demo and check it; when this returns or raises, everything that it started has ended.

    Raises:
        Interrupted: it was stopped during the run.
        LanewayError: something could not be started.
    """
    with ExitStack() as stack:
        calls = stack.enter_context(_history())
        began = time.monotonic()
        with show.bar("Kafka") as progress:
            broker = stack.enter_context(ephemeral(progress=progress))
            options: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, **_QUIET}
        show.say(f"Kafka is up after {time.monotonic() - began:.1f} s")
        admin = Admin(options)
        for topic in (orders, receipts):
            admin.create(topic.name, PARTITIONS)
        mix = _produce(options, records, show)
        _run(options["bootstrap.servers"], mix, calls, lanes, show)
        show.say("checking every call, the receipts and the error topic")
        ends = admin.ends(orders.name, range(PARTITIONS))
        produced = sum(admin.ends(receipts.name, range(PARTITIONS)).values())
        parked = _parked(admin, options)
        return judge(Found(mix, ends, parked, produced, calls.succeeded, calls.failed), lanes)


def _produce(options: dict[str, Any], records: int, show: Show) -> Mix:
    mix, began = Mix(), time.monotonic()

    with show.bar("orders") as progress:

        def counted() -> Iterator[tuple[bytes, bytes | None]]:
            for pair in make_orders(records, mix):
                if mix.total % _STEP == 0 or mix.total == records:
                    progress("producing", mix.total, records)
                yield pair

        produce_many({**options, "acks": "all"}, orders.name, counted())
    show.say(
        f"produced {mix.total:,} orders in {time.monotonic() - began:.1f} s to {PARTITIONS} partitions: {mix.poison} "
        f"are not JSON, {mix.negative} have a negative total, {mix.unstable} fail at first, {mix.deleted} delete a key"
    )
    return mix


def _run(brokers: str, mix: Mix, calls: Calls, lanes: int, show: Show) -> None:
    settings = load(
        overrides={
            "brokers": brokers,
            f"handlers.{charge.__name__}.lanes": lanes,
            # Smaller batches than the default, so that the run has several and the view moves.
            "spark.batch_time": "2s",
            "clusters.main.client": _QUIET,
        }
    )
    ideal = PARTITIONS * lanes / CALL
    with show.watch(lag=LagReader(app, settings), source=calls, total=mix.total, ideal=ideal) as view:
        engine = SparkEngine(settings, once=True, listener=view)
        try:
            app.run(engine)
        except LanewayError:
            if not engine.was_stopped:
                raise
        if engine.was_stopped:  # a clean stop is no error, but no complete run either
            raise Interrupted


def _parked(admin: Admin, options: dict[str, Any]) -> list[tuple[int, int]]:
    """The source position of each copy on the error topic, from its headers."""
    topic = app.routes[0].error_topic_of(app.name)
    partitions = admin.partitions(topic)
    reader = AssignedConsumer(options)
    reader.open([OffsetRange(topic, partition, 0, end) for partition, end in admin.ends(topic, partitions).items()])
    places, deadline = [], time.monotonic() + _READ_LIMIT
    while not reader.is_exhausted:
        if time.monotonic() > deadline:
            raise EngineError(f"{topic} could not be read to its end in {_READ_LIMIT:.0f} s")
        for copy in reader.fetch(10_000, 0.1):
            partition, offset = (copy.header(f"laneway-origin-{name}") for name in ("partition", "offset"))
            places.append((int(partition or -1), int(offset or -1)))
    reader.close()
    return places


@contextmanager
def _history() -> Iterator[Calls]:
    """A folder for the history; Spark's workers inherit its environment variable."""
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory(prefix="laneway-demo-", ignore_cleanup_errors=True) as folder:
        os.environ[VARIABLE] = folder
        try:
            yield Calls(Path(folder))
        finally:
            del os.environ[VARIABLE]
            if before is not None:
                os.environ[VARIABLE] = before
