"""`Admin.delete_records` takes records from the beginning of a log, and never more than was said."""

from __future__ import annotations

import pytest

from laneway.errors import AdminError
from support.errors_scene import Row

pytestmark = pytest.mark.broker


def test_what_lies_before_the_offset_goes(scene):
    """Each partition for itself; nothing said, nothing done."""
    scene.park([Row(b"k%d" % number, b"v") for number in range(4)])
    scene.park([Row(b"other", b"v")], partition=1)
    admin = scene.cluster.admin

    assert admin.delete_records(scene.error_topic, {}) == {}
    assert admin.delete_records(scene.error_topic, {0: 3, 1: 0}) == {0: 3, 1: 0}
    assert [record.key for record in scene.read(scene.error_topic)] == [b"k3", b"other"]


@pytest.mark.parametrize("offset", [-1, -2, 5])
def test_an_offset_that_is_none_deletes_nothing(scene, offset):
    """Kafka takes -1 for the end of the log; here it is a mistake, as an offset past the end is."""
    scene.park([Row(b"k", b"v")])
    with pytest.raises(AdminError, match=f"cannot delete records of topic {scene.error_topic}"):
        scene.cluster.admin.delete_records(scene.error_topic, {0: offset})
    assert len(scene.read(scene.error_topic)) == 1


def test_a_group_without_members_has_none(scene):
    """Also one that does not exist."""
    assert scene.cluster.admin.members(f"{scene.group}.unheard") == 0
