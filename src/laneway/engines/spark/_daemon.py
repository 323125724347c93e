"""The worker daemon: imports once what every worker needs, then forks.

Spark starts it as ``python -m laneway.engines.spark._daemon <worker module>``. Compared with pyspark's own daemon

- no zip file is on the path: pyspark invalidates import caches for every task, and re-reading the directory of
  ``pyspark.zip`` costs 0.3 to 0.6 s of CPU each time;
- heavy modules are imported before the fork, so workers start at once and share their memory;
- what is imported is frozen out of the garbage collector: pyspark runs a full collection after every task, which took
  40 ms of each with a heap of this size.

No Kafka client may be made here: threads do not survive a fork.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib.machinery import PathFinder


def drop_archives() -> None:
    """Take zip and jar files off the path, where pyspark and py4j are installed as packages."""
    rest = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    if PathFinder.find_spec("pyspark", rest) and PathFinder.find_spec("py4j", rest):
        sys.path[:] = rest
        for entry in [entry for entry in sys.path_importer_cache if entry.endswith((".zip", ".jar"))]:
            del sys.path_importer_cache[entry]


def import_before_fork() -> None:
    """Load what every task needs, and the app's own modules."""
    import pyspark.sql.conversion
    import pyspark.sql.pandas.serializers
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.worker  # noqa: F401 - loaded for the workers
    import uvloop  # noqa: F401

    import laneway.engines.spark._source
    import laneway.engines.spark._task  # noqa: F401

    for module in filter(None, os.environ.get("LANEWAY_PRELOAD", "").split(",")):
        try:
            __import__(module)
        except Exception:  # noqa: BLE001, S112 - the task that needs it will fail with the reason; the daemon must live
            continue


if __name__ == "__main__":
    drop_archives()
    import_before_fork()
    gc.collect()
    gc.freeze()
    from pyspark.daemon import manager

    manager()
