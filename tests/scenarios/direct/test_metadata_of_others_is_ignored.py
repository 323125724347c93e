"""Commits of other programs, with metadata that laneway did not write, or that says what cannot be."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from support.doors import MOST, encode_finished

if TYPE_CHECKING:
    from support.direct_scene import DirectScene

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TEXTS = {
    "a word": "hello",
    "as long as ours may be": "x" * MOST,
    "another version": "L9" + str(encode_finished(10, 90, [10]))[2:],
    "damaged": "L1r" + "!" * 40,
    "everything is finished": "L1r" + base64.b64encode(b"\x00\xff\x7f").decode().rstrip("="),
    "more is finished than there is": str(encode_finished(10, 1_000_000, [10])),
}


def test_each_partition_is_read_from_its_offset_on(scene: DirectScene) -> None:
    """Whatever the text says, no record after the committed offset is passed over, and the run goes on."""
    for partition in range(len(TEXTS)):
        scene.produce_rows([(b"k%d" % number, b"v") for number in range(100)], partition=partition)
    scene.commit_text({partition: (10, text) for partition, text in enumerate(TEXTS.values())})
    assert [text for _, text in sorted(scene.commits().values())] == sorted(TEXTS.values())
    scene.worker(seconds=0.01)
    scene.wait_until_idle()
    scene.produce(300)
    scene.wait_until_idle()
    scene.dismiss_all()

    ends = scene.ends()
    called = sorted((event.partition, event.offset) for event in scene.events())
    assert called == [(partition, offset) for partition in range(6) for offset in range(10, ends[partition])]
    assert scene.judged().duplicates == 0
