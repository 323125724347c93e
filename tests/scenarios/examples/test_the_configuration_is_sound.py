"""examples/laneway.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from laneway.settings import load

FILE = Path(__file__).parents[3] / "examples" / "laneway.yaml"


@pytest.mark.parametrize("profile", ["default", "fast", "prod"])
def test_every_profile_of_the_example_is_sound(profile):
    """Each profile loads without a problem or a warning."""
    settings = load(FILE, profile=profile, environ={"KAFKA_PASSWORD": "x"})

    assert settings.warnings == ()
