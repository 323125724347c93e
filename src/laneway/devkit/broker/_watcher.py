"""Ends the nodes of a temporary cluster when the process that wanted them is gone, however it went.

Runs as a script of its own (``python -I _watcher.py FOLDER``), with the standard input tied to its parent. A parent
that is killed cannot clean up, and the kernel's own "signal me when my parent dies" goes by the parent *thread*: a
node restarted from a short-lived thread would die with it.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import time
from pathlib import Path

__all__: list[str] = []

# Somebody reading a log in the folder is not to be ended with the nodes.
_MAIN_CLASSES = frozenset({"kafka.Kafka", "kafka.tools.StorageTool"})


def _wait_for_the_end_of(parent: int) -> None:
    # The pipe tells at once. The parent's number is looked at too, because a forked copy of the parent may hold the
    # other end of the pipe open for as long as it likes.
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin], [], [], 1.0)
        if readable:
            return


def _end_nodes_in(folder: Path) -> None:
    import psutil

    for process in psutil.process_iter(["cmdline"]):
        arguments = process.info["cmdline"] or ()
        ours = any(argument.startswith(f"{folder}{os.sep}") for argument in arguments)
        if ours and _MAIN_CLASSES.intersection(arguments):
            try:
                process.kill()
                # Over, even if nobody has collected it: what matters is that it writes no more files.
                while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    time.sleep(0.02)
            except psutil.Error:
                continue


if __name__ == "__main__":
    _wait_for_the_end_of(int(sys.argv[2]))
    _end_nodes_in(Path(sys.argv[1]))
    shutil.rmtree(sys.argv[1], ignore_errors=True)
