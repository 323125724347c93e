"""The worlds in which each test of the conformance suite runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.contract import DirectWorld, FakeWorld, SparkWorld

if TYPE_CHECKING:
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
