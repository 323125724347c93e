"""The stock connector's job: an identity `mapInArrow` into a noop sink, run by its own environment's Python."""

from __future__ import annotations

import json
import sys
import tempfile
import time

PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
# pyspark ships these already; without the exclusion 62 MB are fetched instead of 10.
EXCLUDED = ",".join(  # noqa: FLY002 - one line each reads better
    (
        "org.apache.hadoop:hadoop-client-runtime",
        "org.apache.hadoop:hadoop-client-api",
        "org.slf4j:slf4j-api",
        "org.lz4:lz4-java",
        "org.xerial.snappy:snappy-java",
        "com.google.code.findbugs:jsr305",
        "org.scala-lang.modules:scala-parallel-collections_2.13",
    )
)


def main() -> None:
    """Run the query twice, a warm-up and a timed one, and print the figures as JSON."""
    from pyspark.sql import SparkSession

    brokers, topic = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", PACKAGE)
        .config("spark.jars.excludes", EXCLUDED)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    seconds = 0.0
    for _ in range(2):
        frame = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", brokers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            frame.mapInArrow(lambda batches: batches, frame.schema)
            .writeStream.format("noop")
            .option("checkpointLocation", tempfile.mkdtemp())
            .trigger(availableNow=True)
        )
        began = time.monotonic()
        running = query.start()
        running.awaitTermination()
        seconds = time.monotonic() - began
        rows = sum(progress.numInputRows for progress in running.recentProgress)
    spark.stop()
    print(json.dumps({"handled": rows, "seconds": round(seconds, 3), "records_per_second": round(rows / seconds, 1)}))


if __name__ == "__main__":
    main()
