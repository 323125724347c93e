"""What `laneway run` says at its end."""

from __future__ import annotations

import pytest

from laneway.cli._run import summary
from laneway.observe import Tally


@pytest.mark.parametrize(
    ("tally", "expected"),
    [
        (Tally(read=1200, handled=1190, skipped=7, parked=3), "1,200 read: 1,190 handled, 7 skipped, 3 parked"),
        (
            Tally(read=9, deferred=1500, dropped=2),
            "9 read: 0 handled, 0 skipped, 0 parked, 1,500 deferred to a retry topic, 2 dropped",
        ),
        (Tally(lost=4), "0 read: 0 handled, 0 skipped, 0 parked, 4 lost before they could be read"),
    ],
)
def test_the_last_line_says_what_became_of_the_records(tally, expected):
    """The usual outcomes always, the rare ones when there were any."""
    assert summary(tally) == expected
