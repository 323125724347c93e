"""Parked records: what waits on an app's error topics, and how it is looked at, replayed and dropped."""

from laneway.parked._carrier import Carrier, Result
from laneway.parked._deed import Deed, Drop, Replay
from laneway.parked._filter import Filter, FilterError
from laneway.parked._log import ErrorLog, Extent
from laneway.parked._pace import Pace
from laneway.parked._parked import Parked, Place
from laneway.parked._plan import LeftOut, Plan, Share, draw_up
from laneway.parked._topic import ErrorTopic, Target, error_topics_of

__all__ = [
    "Carrier",
    "Deed",
    "Drop",
    "ErrorLog",
    "ErrorTopic",
    "Extent",
    "Filter",
    "FilterError",
    "LeftOut",
    "Pace",
    "Parked",
    "Place",
    "Plan",
    "Replay",
    "Result",
    "Share",
    "Target",
    "draw_up",
    "error_topics_of",
]
