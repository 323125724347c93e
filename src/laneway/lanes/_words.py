"""The word in the metadata of every commit: whether work may be under way from its offset on, and since when.

``L1u`` says that it may be, `CLEAN` that it is not. The map of finished offsets and the word of a new group say that it
may be, too. Behind all but `CLEAN` stands ``@`` and a time, milliseconds since the epoch: copies that were made before
that have nothing to do with what is under way. An offset without any of these words was not committed by laneway:
somebody has reset the group, and everything behind it is to run.
"""

from __future__ import annotations

import re

from laneway.lanes._finished import CLEAN, NEW

__all__ = ["UNDER_WAY", "moved_on", "since_of", "under_way"]

UNDER_WAY = "L1u"
"""Records from this offset on may have been worked on, and none of those past it is known to be finished."""

_SINCE = re.compile(r"@(\d{1,15})")
_BEGINNINGS = (UNDER_WAY, NEW, "L1r", "L1b")


def under_way(found: str, now: int, word: str = UNDER_WAY) -> str:
    """The word of an owner that begins at an offset.

    Args:
        found: the text of the commit that it begins at, empty when there is none.
        now: milliseconds since the epoch. Work of a killed owner is under way since that one began, or since now by a
            clock that is behind: what is copied from now on has times of this clock.
        word: what is said besides.
    """
    since = since_of(found)
    return f"{word}@{now if since is None else min(now, since)}"


def since_of(text: str) -> int | None:
    """Since when work may be under way; None when none is, and when the text says nothing of the kind."""
    if not text.startswith(_BEGINNINGS):
        return None
    found = _SINCE.search(text)
    return int(found[1]) if found else 0


def moved_on(text: str) -> str:
    """The word of a commit further on, by somebody who dealt with the records in between while nobody else was at work.

    What a killed owner left past it is still to be known.
    """
    since = since_of(text)
    return CLEAN if since is None else f"{UNDER_WAY}@{since}"
