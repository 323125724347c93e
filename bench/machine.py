"""The machine: facts without which a figure means nothing."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import version

__all__ = ["machine", "tempo"]

_STEPS = 300_000


def machine() -> dict[str, object]:
    """Its cores and memory, and the versions of what runs on it."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": java[0] if java else "unknown",
        **{name: version(name) for name in ("pyspark", "confluent-kafka", "pyarrow", "uvloop")},
    }


def tempo() -> float:
    """Million simple steps a second that one core does right now.

    A machine that is shared with others does not always do the same: figures of a slow spell say nothing about what is
    measured.
    """
    began = time.perf_counter()
    for _ in range(_STEPS):
        pass
    return round(_STEPS / (time.perf_counter() - began) / 1e6, 1)
