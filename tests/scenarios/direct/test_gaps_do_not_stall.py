"""Offsets that hold no record: aborted transactions, control records, compaction, deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.gaps import Transactions, compact, delete_half

if TYPE_CHECKING:
    from support.direct_scene import DirectScene

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_lag_is_zero_behind_transactions(scene: DirectScene) -> None:
    """Gaps between records and at the end of the log are passed while it runs; after a restart nothing is repeated."""
    transactions = Transactions(scene)
    transactions.write(commits=False)
    worker = scene.worker(seconds=0.002)
    scene.wait_until_idle()
    for commits in (True, False, True, False):
        transactions.write(commits=commits)
        scene.wait_until_idle()
    scene.dismiss(worker)
    transactions.write(commits=False)
    scene.worker(seconds=0.002)
    scene.wait_until_idle()
    scene.dismiss_all()

    assert sorted((event.partition, event.offset) for event in scene.events()) == [
        (partition, 21 * block + offset) for partition in range(6) for block in (1, 3) for offset in range(20)
    ]
    assert scene.lag() == 0


def test_lag_is_zero_on_a_compacted_topic(scene: DirectScene) -> None:
    """A topic whose older offsets were compacted away is read to its end."""
    compact(scene)
    scene.worker(seconds=0.002)
    scene.wait_until_idle()
    scene.produce(50, keys=10)
    scene.wait_until_idle()
    scene.dismiss_all()

    left = {(record.partition, record.offset) for record in scene.read(scene.topic)}
    assert left <= {(event.partition, event.offset) for event in scene.events()}
    assert len(scene.events()) < 1_000
    assert scene.begun_twice() == set()


def test_lag_is_zero_where_records_were_deleted(scene: DirectScene) -> None:
    """A group that begins after the first records were deleted begins where the log does, and so does a new owner."""
    scene.produce(600)
    ends = scene.ends()
    delete_half(scene)
    scene.worker(seconds=0.002)
    scene.wait_until_idle()
    scene.dismiss_all()

    assert sorted((event.partition, event.offset) for event in scene.events()) == [
        (partition, offset) for partition, end in sorted(ends.items()) for offset in range(end // 2, end)
    ]


def test_records_that_were_deleted_below_the_commit_are_counted(scene: DirectScene) -> None:
    """With on_data_loss: continue a group whose next records are gone goes on with the first that is there."""
    scene.produce(600)
    ends = scene.ends()
    scene.commit(dict.fromkeys(ends, 2))
    delete_half(scene)
    worker = scene.worker(seconds=0.002, LANEWAY_ON_DATA_LOSS="continue")
    scene.wait_until_idle()
    scene.dismiss_all()

    assert len(scene.events()) == sum(end - end // 2 for end in ends.values())
    assert f"{sum(end // 2 - 2 for end in ends.values())} lost before they could be read" in worker.output
