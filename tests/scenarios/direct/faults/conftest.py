"""A scene of the direct engine for each test: a topic of three partitions, a group, nothing left running afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.direct_faults import DirectFaultScene


@pytest.fixture
def scene(fault_scene: DirectFaultScene) -> DirectFaultScene:
    """On the broker of the session."""
    return fault_scene
