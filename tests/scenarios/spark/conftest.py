"""A scene for each test: a topic, a group and runs of the app, all gone afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.spark_scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.contract import Cluster


@pytest.fixture
def scene_kind() -> type[Scene]:
    """Which scene the tests of this folder get."""
    return Scene


@pytest.fixture
def scene(scene_kind: type[Scene], cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A new topic of three partitions, a new group, and nothing left running."""
    made = scene_kind(cluster.bootstrap, tmp_path, request.node.nodeid)
    made.create(made.topic)
    yield made
    made.close()
