"""What handlers really did, written down by themselves, and a checker that finds what should not be there."""

from laneway.history._check import Verdict, check
from laneway.history._recorder import Event, Recorder, read_history

__all__ = ["Event", "Recorder", "Verdict", "check", "read_history"]
