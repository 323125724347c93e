"""Offsets that hold no record: aborted transactions, control records, compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.gaps import Transactions, compact

if TYPE_CHECKING:
    from support.spark_scene import Scene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_ranges_that_end_in_gaps_end(scene: Scene, spark: object) -> None:
    """A run over ranges that end in aborted records or markers ends, with all that was committed and without lag."""
    transactions = Transactions(scene)
    transactions.write(commits=True)
    transactions.write(commits=False)
    scene.once()
    assert sorted((call.partition, call.offset) for call in scene.calls()) == [
        (partition, offset) for partition in range(3) for offset in range(20)
    ]
    assert scene.lag() == 0
    # Nothing but gaps from here to the end.
    transactions.write(commits=False)
    scene.once()
    assert len(scene.calls()) == 60
    assert scene.lag() == 0


def test_a_compacted_topic(scene: Scene, spark: object) -> None:
    """A topic whose older offsets were compacted away is read to its end."""
    compact(scene)
    scene.once()
    left = [(record.partition, record.offset) for record in scene.read(scene.topic)]
    assert set(left) <= {(call.partition, call.offset) for call in scene.calls()}
    assert len(scene.calls()) < 1_000
    assert scene.lag() == 0
