"""An app with parked records on the test run's broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.errors_scene import ErrorScene

if TYPE_CHECKING:
    from pathlib import Path

    from support.contract import Cluster


@pytest.fixture
def scene(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """An app with a source and an error topic of two partitions each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LANEWAY_CONFIG", raising=False)
    monkeypatch.delenv("LANEWAY_PROFILE", raising=False)
    return ErrorScene(cluster, tmp_path, request.node.nodeid)
