"""What handlers really did, written down by themselves, and a checker that finds what should not be there."""

from laneway.devkit.history._check import Verdict, check
from laneway.devkit.history._ownership import (
    Allowance,
    LoggedCommit,
    Ownership,
    OwnershipRecorder,
    OwnershipVerdict,
    check_ownership,
    read_ownership,
)
from laneway.devkit.history._recorder import Event, Recorder, read_history

__all__ = [
    "Allowance",
    "Event",
    "LoggedCommit",
    "Ownership",
    "OwnershipRecorder",
    "OwnershipVerdict",
    "Recorder",
    "Verdict",
    "check",
    "check_ownership",
    "read_history",
    "read_ownership",
]
