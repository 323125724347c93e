"""Records that wait on a retry topic: when they run, and what a stop and a restart do to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.delays import delay_is_kept, stop_and_restart_keep_what_waits

if TYPE_CHECKING:
    from support.fault_scene import FaultScene

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_a_delay_is_never_short_and_hardly_long(scene: FaultScene) -> None:
    """On an idle app no second call comes sooner than the delay after the first, and most less than 1 s later."""
    delay_is_kept(scene)


def test_a_stop_and_a_restart_leave_what_waits_in_peace(scene: FaultScene) -> None:
    """A stop does not wait for records on a retry topic; a later run has them still, early for none, late for none."""
    stop_and_restart_keep_what_waits(scene, within=10)
