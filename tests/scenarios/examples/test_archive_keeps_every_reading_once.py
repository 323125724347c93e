"""examples/archive.py on a real broker."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_archive_keeps_every_reading_once(examples, tmp_path):
    """The file has as many rows as the topic has records, from all sensors."""
    examples.produce("readings", 5000)
    examples.run("archive:app", "--engine", "direct", ARCHIVE=str(tmp_path / "readings.db"))

    with closing(sqlite3.connect(tmp_path / "readings.db")) as database:
        found = database.execute("select count(*), count(distinct sensor), sum(value) from reading").fetchone()
    assert found == (5000, 40, pytest.approx(sum(range(5000)) / 10))
