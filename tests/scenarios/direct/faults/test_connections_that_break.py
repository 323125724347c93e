"""Connections that are cut or silent, and a broker that hangs: nothing is lost or out of order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pytest

from laneway.devkit import broker
from support.direct_scene import DirectScene
from support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.slow]

Harm: TypeAlias = "Callable[[Way], None]"
AWAY = 4.0  # seconds that nothing answers: less than a session, which is 6 s


class Way(NamedTuple):
    """A broker, and the proxy that all clients of a test go through."""

    node: broker.Node
    proxy: Proxy


@pytest.fixture(scope="module")
def way() -> Iterator[Way]:
    """A broker of the tests' own, which they may harm."""
    with broker.ephemeral(is_proxied=True) as running:
        ports = running.nodes[0].plan.proxy
        assert ports
        with Proxy(ports.back, ports.front) as proxy:
            yield Way(running.nodes[0], proxy)


def _cut(way: Way) -> None:
    for _ in range(3):
        assert way.proxy.reset_all() > 0
        time.sleep(1)


def _silence(way: Way) -> None:
    way.proxy.stall(60)
    time.sleep(AWAY)
    way.proxy.resume()


def _freeze(way: Way) -> None:
    way.node.suspend()
    time.sleep(AWAY)
    way.node.resume()


@pytest.mark.parametrize("harm", [_cut, _silence, _freeze], ids=["reset", "stalled", "frozen broker"])
def test_nothing_is_lost_or_out_of_order(way: Way, tmp_path: Path, request: pytest.FixtureRequest, harm: Harm) -> None:
    """Two workers under traffic go on by themselves, stop cleanly, and repeat at most what was not committed."""
    scene = DirectScene(f"{broker.HOST}:{way.proxy.port}", tmp_path, request.node.nodeid)
    try:
        scene.create(scene.topic, 6)
        for _ in range(2):
            scene.worker(seconds=0.01, lanes=4)
        scene.wait_for(lambda: scene.told_by(0) and scene.told_by(1), why="two members")
        scene.traffic(100, keys=60)
        scene.wait_for_calls(100)
        harm(way)
        scene.wait_for_calls(len(scene.events()) + 200)
        count = scene.quiet()
        scene.wait_until_idle()
        scene.dismiss_all()
        verdict, ownership = scene.judged(), scene.judged_ownership()
    finally:
        scene.close()
    print(f"{count} records: {verdict} {ownership}")
    assert verdict.records >= count
    assert (verdict.lost, verdict.inversions, verdict.overlaps) == (0, 0, 0)
    assert verdict.duplicates <= 100 * (AWAY + 1)
    assert ownership.is_clean, ownership.examples
