"""One small streaming query, run once as a script so that the JVM can write down the classes it needs."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def main(java_options: str) -> None:  # noqa: C901 - one script, read from top to bottom
    """Run three batches of a source without records, then stop cleanly."""
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    from laneway._engines.spark.session import session_conf

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"n": 0}

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
            del limit
            return {"n": min(start["n"] + 1, 3)}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            del start, end
            return [InputPartition(0), InputPartition(1)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            del partition
            yield pa.RecordBatch.from_arrays([pa.array([b"{}"], pa.binary())], names=["tally"])

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "warmup"

        def schema(self) -> str:
            return "tally binary"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            del schema
            return Reader()

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", java_options)
        for name, value in session_conf("local[2]", ui=False, extra={}).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.dataSource.register(Source)
        seen: list[int] = []

        def count(frame: Any, batch: int) -> None:
            frame.collect()
            seen.append(batch)

        query = (
            spark.readStream.format("warmup")
            .load()
            .writeStream.foreachBatch(count)
            .option("checkpointLocation", folder)
            .start()
        )
        deadline = time.monotonic() + 120
        while len(seen) < 3 and query.isActive and time.monotonic() < deadline:
            time.sleep(0.1)
        query.stop()
        spark.stop()
    if len(seen) < 3:
        raise SystemExit(f"the warm-up query ran {len(seen)} of 3 batches: {query.exception()}")


if __name__ == "__main__":
    main(sys.argv[1])
