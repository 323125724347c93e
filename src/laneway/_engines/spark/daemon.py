"""The worker daemon: imports once what every worker needs, then forks.

Spark starts it as ``python -m laneway._engines.spark.daemon <worker module>``. Compared with pyspark's own daemon

- heavy modules are imported before the fork, so workers start at once and share their memory;
- what is imported is frozen out of the garbage collector: pyspark runs a full collection after every task, which took
  40 ms of each with a heap of this size.

(``_site`` has taken the zip files off the path before: pyspark invalidates import caches for every task, and re-reading
the directory of ``pyspark.zip`` would cost 0.3 to 0.6 s of CPU each time.)

No Kafka client may be made here: threads do not survive a fork.

Signals. A service manager sends SIGTERM to every process of a service at once. Only the driver may act on it: it lets
the workers finish what they have begun. Spark ends this process by closing its stdin, and this process then sends
SIGHUP to the workers, whose sockets the JVM closes at about the same time. Whatever a worker notices first, it runs
the cleanup hooks of its apps, unless a task is under way.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def import_before_fork() -> None:
    """Import the modules that every task needs.

    The app's own modules are imported only if ``LANEWAY_PRELOAD`` names them: a connection opened at import would be
    shared by all forked workers.
    """
    import pyspark.sql.conversion
    import pyspark.sql.pandas.serializers
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.worker  # noqa: F401 - loaded for the workers
    import uvloop  # noqa: F401

    import laneway._engines.spark.source
    import laneway._engines.spark.task  # noqa: F401

    for module in filter(None, os.environ.get("LANEWAY_PRELOAD", "").split(",")):
        try:
            __import__(module)
        except Exception:  # noqa: BLE001, S112 - the task that needs it will fail with the reason; the daemon must live
            continue


class Signals:
    """Replaces the module `signal` in pyspark's daemon.

    The daemon resets SIGTERM to its default before every task. Here a function that does nothing is set instead: unlike
    a blocked or ignored signal it is not inherited by programs that a handler starts.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    @staticmethod
    def signal(number: int, action: Any) -> Any:
        if number == signal.SIGTERM and action is signal.SIG_DFL:
            action = _pass_over
        return signal.signal(number, action)


def _pass_over(*_: object) -> None:
    pass


def ending_in_order(worker: Callable[..., int]) -> Callable[..., int]:
    """Make pyspark's task loop end its process cleanly."""
    from laneway._engines.spark.worker import leave

    is_new = True

    def work(sock: Any, authenticated: Any) -> int:
        nonlocal is_new
        if is_new:
            is_new = False
            signal.signal(signal.SIGTERM, _pass_over)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            # On a thread, because a handler may keep the main one in a call that notices no signal.
            threading.Thread(target=_wait_for_the_end, name="laneway-end", daemon=True).start()
        try:
            code = worker(sock, authenticated)
        except OSError:
            leave()  # the answer is not read
        if code:
            leave()
        return code

    return work


def _wait_for_the_end() -> None:
    from laneway._engines.spark.worker import leave

    signal.sigwait({signal.SIGHUP})
    leave()


def run() -> None:
    """Serve until Spark closes stdin."""
    import_before_fork()
    gc.collect()
    gc.freeze()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    from pyspark import daemon

    daemon.signal = Signals()
    daemon.worker = ending_in_order(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    run()
