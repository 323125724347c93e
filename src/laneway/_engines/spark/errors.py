"""Runs over an app's error topics on Spark: what their queries read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from laneway._engines.spark.from_settings import stream_of
from laneway._engines.spark.query_spec import ErrorPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._engines.spark.query_spec import QuerySpec
    from laneway._runtime.error_runs import ErrorPlan
    from laneway.settings import Settings

__all__ = ["error_streams"]


def error_streams(plans: Sequence[ErrorPlan], settings: Settings, payload: bytes) -> list[QuerySpec]:
    """The query specification of each plan."""
    streams = []
    for plan in plans:
        stream = stream_of(plan.app.name, plan.routes, settings, payload)
        part = ErrorPart(plan.ends, plan.partitions)
        # Records deleted from an error topic are counted as lost; the others are still handled.
        streams.append(replace(stream, tasks=1, start="earliest", skip_lost=True, errors=part))
    return streams
