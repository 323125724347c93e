"""A scene for each test: a topic, a group and workers, all gone afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.direct_faults import DirectFaultScene
from support.direct_scene import DirectScene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.contract import Cluster


@pytest.fixture
def scene(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[DirectScene]:
    """A new topic of six partitions, a new group, and nothing left running."""
    made = DirectScene(cluster.bootstrap, tmp_path, request.node.nodeid)
    made.create(made.topic, 6)
    yield made
    made.close()


@pytest.fixture
def fault_scene(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[DirectFaultScene]:
    """A new topic of three partitions, whose records may say how often they fail."""
    made = DirectFaultScene(cluster.bootstrap, tmp_path, request.node.nodeid)
    made.create(made.topic)
    yield made
    made.close()
