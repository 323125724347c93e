"""Takes Spark's zip files off the path of the Python processes that Spark starts.

Spark puts ``pyspark.zip`` before the installed package. A zip holds no byte-code, so each of the four processes that a
query needs would compile pyspark anew: half a second each. The session puts this folder on PYTHONPATH of the JVM alone.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def drop_archives() -> None:
    """Remove zip and jar files from the path, where pyspark and py4j are installed as packages."""
    rest = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    if PathFinder.find_spec("pyspark", rest) and PathFinder.find_spec("py4j", rest):
        sys.path[:] = rest
        for entry in [entry for entry in sys.path_importer_cache if entry.endswith((".zip", ".jar"))]:
            del sys.path_importer_cache[entry]


def run_the_other_one() -> None:
    """Run the sitecustomize module that this one shadows."""
    here = Path(__file__).parent
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if Path(entry) != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


drop_archives()
run_the_other_one()
