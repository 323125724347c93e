"""A scene of the direct engine for each test: a topic of three partitions, a group, nothing left running afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.direct_faults import DirectFaultScene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.contract import Cluster


@pytest.fixture
def scene(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[DirectFaultScene]:
    """On the broker of the session."""
    made = DirectFaultScene(cluster.bootstrap, tmp_path, request.node.nodeid)
    made.create(made.topic)
    yield made
    made.close()
