"""The app of `support.spark_apps`, whose run dies at a chosen point, once.

IT_DIE names the point, IT_DEAD is a file that says that it was reached. The module is imported in the driver, in the
planner and in the workers; each plants the points of its own.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, NoReturn

from support.spark_apps import app

__all__ = ["app"]

_point = os.environ.get("IT_DIE", "")
# The first process that imports this is the driver; the others inherit the variable.
_driver = int(os.environ.setdefault("IT_DRIVER", str(os.getpid())))


def _die(process: int) -> NoReturn:
    Path(os.environ["IT_DEAD"]).touch()
    os.kill(process, signal.SIGKILL)
    time.sleep(10)  # nothing may happen after the death, and a planner does not end with its driver
    os._exit(1)


def _is_due(point: str) -> bool:
    return point == _point and not Path(os.environ["IT_DEAD"]).exists()


def _plant_in_batches() -> None:
    """In the driver, and in workers."""
    from support.doors import Query, TaskReport

    commit, encode = Query._commit, TaskReport.encode

    def committing(self: Any, reports: Any) -> None:
        if reports and _is_due("before the commit"):
            _die(_driver)
        commit(self, reports)
        if reports and _is_due("after the commit"):
            _die(_driver)

    def reporting(self: Any) -> bytes:
        if _is_due("before the row"):
            _die(os.getpid())
        return bytes(encode(self))

    Query._commit, TaskReport.encode = committing, reporting


def _plant_in_plans() -> None:
    """In the planner."""
    from support.doors import Planner

    latest, tasks = Planner.latest, Planner.tasks

    def looking(self: Any, start: Any) -> Any:
        if self._batch and _is_due("after Spark's commit log"):
            _die(_driver)
        if self._batch and _is_due("the planner"):
            _die(os.getpid())
        return latest(self, start)

    def planning(self: Any) -> Any:
        if _is_due("after Spark's offset log"):
            _die(_driver)
        return tasks(self)

    Planner.latest, Planner.tasks = looking, planning


@app.setup
def nothing() -> None:
    """Part of the app, so that each process that unpickles the app imports this module."""


if _point:
    _plant_in_batches()
    _plant_in_plans()
