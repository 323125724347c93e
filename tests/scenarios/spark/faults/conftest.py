"""The scenes of these tests have a ladder."""

from __future__ import annotations

import pytest

from support.fault_scene import FaultScene


@pytest.fixture
def scene_kind() -> type[FaultScene]:
    """On the broker of the session."""
    return FaultScene
