"""Histories of handler calls, recorded by the handlers, and a checker of order and loss."""

from laneway.devkit.history._check import Position, Verdict, check, most_at_once
from laneway.devkit.history._recorder import Event, Recorder, append, read_history

__all__ = ["Event", "Position", "Recorder", "Verdict", "append", "check", "most_at_once", "read_history"]
