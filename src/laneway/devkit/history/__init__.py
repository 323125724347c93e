"""Histories of handler calls, recorded by the handlers, and a checker of order and loss."""

from laneway.devkit.history._check import Position, Verdict, check
from laneway.devkit.history._recorder import Event, Recorder, read_history

__all__ = ["Event", "Position", "Recorder", "Verdict", "check", "read_history"]
