"""`laneway bench`: measure an engine on this machine."""

from __future__ import annotations

import json
from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated

import typer

from laneway.cli._run import EngineName

__all__ = ["bench"]


class WorkloadName(StrEnum):
    """The workloads."""

    W1 = "w1"
    W2 = "w2"
    W3 = "w3"
    W4 = "w4"
    W5 = "w5"
    W6 = "w6"


class HandlerName(StrEnum):
    """Handler kinds of a workload."""

    SYNC = "sync"
    ASYNC = "async"
    COLUMNAR = "columnar"


def bench(
    workload: Annotated[
        WorkloadName,
        typer.Argument(help="w1 slow handler, w2 no-op, w3 batches, w4 latency, w5 skewed keys, w6 many lanes."),
    ],
    engine: Annotated[EngineName, typer.Option(help="What to measure.")] = EngineName.SPARK,
    lanes: Annotated[int | None, typer.Option(help="Lanes per partition.")] = None,
    handler: Annotated[HandlerName | None, typer.Option(help="Kind of handler.")] = None,
    records: Annotated[int | None, typer.Option(help="How many records.")] = None,
    brokers: Annotated[str | None, typer.Option(help="Use this Kafka instead of an ephemeral one.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark master.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure a workload: records per second against the ideal, CPU, memory, latency, order and loss.

    A timed pass runs on a warm query without any recording; a second pass records every call and checks order and loss.
    """
    from laneway.devkit.bench import WORKLOADS, measure
    from laneway.devkit.broker import FULL_SPEED, ephemeral
    from laneway.observe import logger

    chosen = WORKLOADS[workload.value].with_options(
        lanes=lanes, handler=handler.value if handler else None, records=records
    )

    with ExitStack() as stack:
        leave_out: set[int] = set()
        if brokers is None:
            logger("bench").info("starting an ephemeral Kafka")
            running = stack.enter_context(ephemeral(java_options=FULL_SPEED))
            brokers, leave_out = running.bootstrap, set(running.pids)
        measured = measure(chosen, brokers, engine=engine.value, leave_out=leave_out, master=master)
    figures = measured.as_dict()
    if as_json:
        print(json.dumps(figures))
        return
    width = max(map(len, figures))
    for name, value in figures.items():
        print(f"{name:<{width}}  {value:,}" if isinstance(value, (int, float)) else f"{name:<{width}}  {value}")
