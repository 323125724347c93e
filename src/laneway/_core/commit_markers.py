"""The marker in the metadata of every commit: whether work may be under way from its offset on, and since when.

``L1u`` says that it may be, `CLEAN` that it is not. The map of finished offsets and the marker of a new group also say
that it may be. All but `CLEAN` end with ``~`` and a time, in milliseconds since the epoch: copies that were made before
that time have nothing to do with this position. An offset without any of these markers was not committed by laneway:
the group was reset, and everything behind the offset is to run.
"""

from __future__ import annotations

import re

from laneway._core.finished_map import CLEAN, NEW, without_topic_id

__all__ = ["UNDER_WAY", "moved_on", "since_of", "under_way"]

UNDER_WAY = "L1u"
"""Records from this offset on may have been worked on, and none of those past it is known to be finished."""

_SINCE = re.compile(r"~(\d{1,15})")
_BEGINNINGS = (UNDER_WAY, NEW, "L1r", "L1b")


def under_way(found: str, now: int, marker: str = UNDER_WAY) -> str:
    """The marker of an owner that begins at an offset.

    Args:
        found: the metadata of the commit that it begins at, empty when there is none.
        now: milliseconds since the epoch. The time of a killed owner is kept, unless this clock is behind it: copies
            that are made from now on have times of this clock.
        marker: what stands before the time.
    """
    since = since_of(found)
    return f"{marker}~{now if since is None else min(now, since)}"


def since_of(text: str) -> int | None:
    """Since when work may be under way; None when none is, and when the text is not laneway's."""
    if not text.startswith(_BEGINNINGS):
        return None
    found = _SINCE.search(without_topic_id(text))
    return int(found[1]) if found else 0


def moved_on(text: str) -> str:
    """The marker of a commit further on, by a command that dealt with the records in between while no owner ran.

    The time of a killed owner is kept: its copies may be of records past the new offset. So is what follows an ``@``.
    """
    since = since_of(text)
    marker = CLEAN if since is None else f"{UNDER_WAY}~{since}"
    return marker + "".join(text.partition("@")[1:])
