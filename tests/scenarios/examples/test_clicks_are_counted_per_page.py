"""examples/clicks.py on a real broker and Spark."""

from __future__ import annotations

import json
from collections import Counter

import pytest

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_clicks_are_counted_per_page(examples, tmp_path):
    """The lines add up to the clicks that were produced."""
    examples.produce("clicks", 70_000)
    examples.run("clicks:app", CLICKS=str(tmp_path / "counts.jsonl"))

    total = Counter()
    for line in (tmp_path / "counts.jsonl").read_text().splitlines():
        total.update(json.loads(line))
    assert total == {f"/page/{number}": 10_000 for number in range(7)}
