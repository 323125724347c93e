"""The private names of laneway that tests above the unit tests use, each with its room.

Only this module changes when such a name moves. A name is imported when a test asks for it, so that no test loads
Spark or a Kafka client that it does not use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_ROOMS = {
    "Admin": "laneway._kafka",
    "AssignedConsumer": "laneway._kafka",
    "BrokerUnavailableError": "laneway._kafka",
    "ClusterRuntime": "laneway._engines.direct.cluster_runtime",
    "ERROR_HEADERS": "laneway._core.headers",
    "Failure": "laneway._core.headers",
    "FencedError": "laneway._kafka",
    "GroupConsumer": "laneway._kafka",
    "GroupOffsets": "laneway._kafka",
    "Headers": "laneway._declare.record",
    "Level": "laneway._declare.health",
    "MOST": "laneway._core.finished_map",
    "OffsetAndMetadata": "laneway._kafka",
    "OffsetRange": "laneway._kafka",
    "Place": "laneway._kafka",
    "Planner": "laneway._engines.spark.planner",
    "Position": "laneway._engines.spark.plan",
    "Query": "laneway._engines.spark.query",
    "Record": "laneway._declare.record",
    "RunReport": "laneway._runtime.report",
    "State": "laneway._runtime.lifecycle",
    "TaskReport": "laneway._engines.spark.plan",
    "configured": "laneway._runtime.configure",
    "decode_finished": "laneway._core.finished_map",
    "encode_finished": "laneway._core.finished_map",
    "error_commands": "laneway.cli._errors:app",
    "error_topic_name": "laneway._declare.handler",
    "every_command": "laneway.cli._main:app",
    "find_java": "laneway.devkit.broker._java",
    "free_ports": "laneway.devkit.broker._ports",
    "group_consumer": "laneway._kafka",
    "home_directory": "laneway.devkit.broker._home",
    "locked": "laneway.devkit.broker._home",
    "open_session": "laneway._engines.spark.session",
    "parked_headers": "laneway._core.headers",
    "produce_many": "laneway._kafka",
    "session_conf": "laneway._engines.spark.session",
    "streams_of": "laneway._engines.spark.from_settings",
    "wait_over": "laneway.devkit.broker._process",
}
"""Name here to its module; after a colon its name there, when that is another one."""


def __getattr__(name: str) -> Any:
    try:
        module, _, other = _ROOMS[name].partition(":")
    except KeyError:
        raise AttributeError(f"no door to {name!r}") from None
    return getattr(import_module(module), other or name)


def set_commit_interval(seconds: float) -> None:
    """Let the loops of this process commit so seldom, for tests of what happens before a first commit."""
    import_module("laneway._runtime.commits")._COMMIT = seconds
