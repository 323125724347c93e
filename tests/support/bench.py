"""The modules of bench, which are scripts beside each other and no package."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

_BENCH = Path(__file__).parents[2] / "bench"
# Last in line, so that they hide nothing; of the two run.py it is bench/run.py that is found.
sys.path += [str(_BENCH), str(_BENCH / "peers")]

figures = importlib.import_module("figures")
failure = importlib.import_module("failure")
run = importlib.import_module("run")
sheet = importlib.import_module("sheet")
table = importlib.import_module("table")
tables = importlib.import_module("tables")
topics = importlib.import_module("topics")


def _peers_run():
    spec = importlib.util.spec_from_file_location("peers_run", _BENCH / "peers" / "run.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


peers_run = _peers_run()
