"""The broker's own log of a group's commits, read by the module that the soak reads it with."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

__all__ = ["Clock", "logged_commits"]

# Last in line, so that the modules of bench hide nothing.
sys.path.append(str(Path(__file__).parents[2] / "bench"))

_offsets = importlib.import_module("soak.offsets")
Clock, logged_commits = _offsets.Clock, _offsets.logged_commits
