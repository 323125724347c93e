"""Which settings reach the clients that read for handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.doors import configured
from support.doors import group_consumer as _membership

if TYPE_CHECKING:
    from pathlib import Path

    from support.contract import Cluster

pytestmark = [pytest.mark.broker]

GIVEN = {"clusters.main.consumer.fetch_max_size": "3MiB", "clusters.main.consumer.buffer_size": "2MiB"}
EFFECTIVE = {"fetch.message.max.bytes": 3 * 2**20, "queued.max.messages.kbytes": 512}
"""For four partitions that one client reads."""


def of_direct(world: Any, app: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the member of the group is made with."""
    made: list[dict[str, Any]] = []
    consumer = _membership.Consumer

    def making(options: dict[str, Any], *rest: Any, **more: Any) -> Any:
        made.append(options)
        return consumer(options, *rest, **more)

    monkeypatch.setattr(_membership, "Consumer", making)
    world.run(app)
    return made[0]


def of_spark(app: Any, settings: Any) -> dict[str, Any]:
    """What each task's reader is made with."""
    from support.doors import streams_of

    (stream,) = streams_of(configured(app, settings), settings)
    return stream.consumer


def test_fetch_size_and_buffer_size_reach_the_clients(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """On both engines, whatever the buffers of the handlers are."""
    from laneway.settings import load
    from support.contract import DirectWorld

    world = DirectWorld(tmp_path, request.node.nodeid, cluster)
    world.settings = dict(GIVEN)
    topic, app = world.topic(4), world.app()
    app.handler(topic)(print)
    settings = load(overrides={"brokers": cluster.bootstrap, "spark.tasks": 1, **GIVEN})
    found = of_direct(world, app, monkeypatch), of_spark(app, settings)
    for options in found:
        assert {name: options[name] for name in EFFECTIVE} == EFFECTIVE
