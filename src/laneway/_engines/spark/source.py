"""The Python data source through which Spark calls the planner and the tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laneway._engines.spark.plan import TaskSpec
    from laneway._engines.spark.planner import Planner
    from laneway._engines.spark.query_spec import QuerySpec

__all__ = ["SCHEMA", "source_of"]

SCHEMA = "report binary"


class Task(InputPartition):
    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Delegates Spark's calls: planning in one long-lived process, reading in the workers of the tasks."""

    def __init__(self, stream: QuerySpec) -> None:
        self._stream = stream
        self._made: Planner | None = None

    @property
    def _planner(self) -> Planner:
        # Created at the first planning call: tasks unpickle the same object and plan nothing.
        if self._made is None:
            from laneway._engines.spark.planner import Planner

            self._made = Planner(self._stream)
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return {"_stream": self._stream, "_made": None}

    def initialOffset(self) -> dict[str, Any]:
        return self._planner.initial()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        del limit  # batches end by time
        return self._planner.latest(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        del start, end  # numbers of batches; the planner has the one that it planned last
        return [Task(spec) for spec in self._planner.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from laneway._engines.spark.task import run_task

        assert isinstance(partition, Task)  # noqa: S101 - for the type checker: Spark gives back what we gave
        report = run_task(self._stream, partition.spec)
        yield pa.RecordBatch.from_arrays([pa.array([report.encode()], pa.binary())], names=["report"])


def source_of(stream: QuerySpec, name: str) -> type[DataSource]:
    """A data source class for one query.

    A class and not options, because Spark shows options in plans and logs, and the specification holds secrets.
    """

    class LanewaySource(DataSource):
        """The offsets of one topic."""

        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            del schema
            return Reader(stream)

    return LanewaySource
