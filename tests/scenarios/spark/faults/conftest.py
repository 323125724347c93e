"""A scene with a ladder for each test: a topic of three partitions, a group, and nothing left running afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.fault_scene import FaultScene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.contract import Cluster


@pytest.fixture
def scene(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FaultScene]:
    """On the broker of the session."""
    made = FaultScene(cluster.bootstrap, tmp_path, request.node.nodeid)
    made.create(made.topic)
    yield made
    made.close()
