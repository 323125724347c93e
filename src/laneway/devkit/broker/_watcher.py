"""Stops the nodes of a temporary cluster when their parent process ends, in whatever way.

Runs as a script (``python -I _watcher.py FOLDER PARENT``), with its standard input tied to the parent. A killed parent
cannot clean up, and the kernel's parent-death signal follows the parent *thread*: a node that was restarted from a
short-lived thread would die with that thread.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import time
from pathlib import Path

__all__: list[str] = []

# A process that only reads a log in the folder must not be killed.
_MAIN_CLASSES = frozenset({"kafka.Kafka", "kafka.tools.StorageTool"})


def _wait_for_the_end_of(parent: int) -> None:
    # The pipe closes at once. The parent's process id is checked too, because a forked copy of the parent may keep
    # the other end of the pipe open.
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
                # A zombie has ended too: it writes no more files.
                while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    time.sleep(0.02)
            except psutil.Error:
                continue


if __name__ == "__main__":
    _wait_for_the_end_of(int(sys.argv[2]))
    _end_nodes_in(Path(sys.argv[1]))
    shutil.rmtree(sys.argv[1], ignore_errors=True)
