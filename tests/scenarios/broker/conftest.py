"""A home of its own for each test, with the jars that `laneway kafka fetch` brought."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laneway.devkit import broker

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty LANEWAY_HOME, except for the jars; whatever a test leaves running in it is stopped."""
    jars = broker.jars_directory(broker.home_directory())
    if not jars.is_dir():
        pytest.fail("The Kafka jars are not there; run `laneway kafka fetch` once")
    own = tmp_path / "home"
    broker.jars_directory(own).parent.mkdir(parents=True)
    broker.jars_directory(own).symlink_to(jars)
    yield own
    for name in broker.names(home=own):
        broker.stop(name, home=own)
