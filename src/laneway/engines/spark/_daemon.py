"""The worker daemon: imports once what every worker needs, then forks.

Spark starts it as ``python -m laneway.engines.spark._daemon <worker module>``. Compared with pyspark's own daemon

- heavy modules are imported before the fork, so workers start at once and share their memory;
- what is imported is frozen out of the garbage collector: pyspark runs a full collection after every task, which took
  40 ms of each with a heap of this size.

(``_site`` has taken the zip files off the path before: pyspark invalidates import caches for every task, and re-reading
the directory of ``pyspark.zip`` would cost 0.3 to 0.6 s of CPU each time.)

No Kafka client may be made here: threads do not survive a fork.
"""

from __future__ import annotations

import gc
import os
import signal


def import_before_fork() -> None:
    """Load what every task needs.

    The app's own modules are not among it unless ``LANEWAY_PRELOAD`` names them: a module that opens a connection when
    it is imported would share that connection between all workers.
    """
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
    import_before_fork()
    gc.collect()
    gc.freeze()
    # A service manager sends SIGTERM to every process of a service at once. Only the driver may act on it: it lets the
    # workers finish what they have begun. Spark ends this process by closing its stdin, and workers with SIGHUP.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    from pyspark.daemon import manager

    manager()
