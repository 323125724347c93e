"""The worlds in which each test of the conformance suite runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.contract import Cluster, DirectWorld, FakeWorld, SparkWorld

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.contract import World


@pytest.fixture(
    params=[
        "fake",
        "shuffled",
        pytest.param("direct", marks=[pytest.mark.broker]),
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.broker]),
    ]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """The fake in plain order, the fake in a mixed order, and the engines with a real broker."""
    name = request.node.nodeid
    if request.param == "spark":
        request.getfixturevalue("spark")
        return SparkWorld(tmp_path, name, request.getfixturevalue("cluster"))
    if request.param == "direct":
        return DirectWorld(tmp_path, name, request.getfixturevalue("cluster"))
    return FakeWorld(tmp_path, name, seed=7 if request.param == "shuffled" else None)


@pytest.fixture(scope="session")
def other_cluster() -> Iterator[Cluster]:
    """A second broker, for apps that work on two clusters."""
    from confluent_kafka import Producer

    from laneway.devkit import broker
    from support.doors import Admin

    with broker.ephemeral() as running:
        options = {"bootstrap.servers": running.bootstrap}
        yield Cluster(running.bootstrap, Admin(options), Producer({**options, "linger.ms": 1}))


@pytest.fixture(
    params=[
        pytest.param("direct", marks=[pytest.mark.broker]),
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.broker]),
    ]
)
def worlds(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[World, World]:
    """Each engine that has clusters, on two brokers: its own world, and one on the second broker to look at."""
    name, own, other = request.node.nodeid, request.getfixturevalue("cluster"), request.getfixturevalue("other_cluster")
    if request.param == "spark":
        request.getfixturevalue("spark")
    kind = SparkWorld if request.param == "spark" else DirectWorld
    return kind(tmp_path, name, own), DirectWorld(tmp_path, name, other)
