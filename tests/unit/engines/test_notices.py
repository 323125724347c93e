"""What a task says in mid-batch reaches the engine's state."""

from __future__ import annotations

import threading

from laneway import SparkEngine
from laneway._engines.spark.notices import Notices, notice
from laneway._runtime.lifecycle import State


class Query:
    """The part of a query that the engine asks."""

    def __init__(self, folder):
        self.notices = Notices(str(folder))
        self.is_batch_over = threading.Event()


def test_a_notice_is_read_once_and_whole(tmp_path, capsys):
    """Each line comes once, on one line, and also on stderr; half a line waits for its rest."""
    notices = Notices(str(tmp_path))
    assert notices.new() == []
    notice(str(tmp_path), "cannot write to x:\n down")
    notice(str(tmp_path), "again")
    assert notices.new() == ["cannot write to x: down", "again"]
    assert notices.new() == []
    with (tmp_path / "notices").open("ab") as lines:
        lines.write(b"half")
    assert notices.new() == []
    assert "laneway: again" in capsys.readouterr().err


def test_without_a_folder_it_is_only_said(tmp_path, capsys):
    """On a cluster the driver's folder is elsewhere."""
    notice(str(tmp_path / "gone"), "cannot write")
    assert capsys.readouterr().err == "laneway: cannot write\n"


def test_the_state_says_what_a_batch_waits_for_until_it_is_over(tmp_path):
    """The view and whoever asks for health see topic and reason, and see them go."""
    seen = []
    engine = SparkEngine(state_changed=lambda state, detail: seen.append((state, detail)))
    query = Query(tmp_path)
    engine.life.enter(State.CONSUMING)
    notice(str(tmp_path), "cannot write to orders.billing.error: 2 of 3 replicas are in sync")
    engine._show(query)
    assert "orders.billing.error" in engine.life.detail
    query.is_batch_over.set()
    engine._show(query)
    assert seen[1:] == [
        (State.CONSUMING, "cannot write to orders.billing.error: 2 of 3 replicas are in sync"),
        (State.CONSUMING, ""),
    ]
