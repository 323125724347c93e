"""Parked records: read an app's error topics, replay records, drop records."""

from laneway.admin._error_log import ErrorLog, OpenRange
from laneway.admin._error_topic import ErrorTopic, Target, error_topics_of
from laneway.admin._filter import Filter, FilterError, key_of, time_of
from laneway.admin._parked import ParkedRecord, Position
from laneway.admin._redrive import Redrive, Result, Throttle, Watcher
from laneway.admin._redrive_plan import Action, Drop, LeftOut, PartitionPlan, RedrivePlan, Replay, plan_redrive

__all__ = [
    "Action",
    "Drop",
    "ErrorLog",
    "ErrorTopic",
    "Filter",
    "FilterError",
    "LeftOut",
    "OpenRange",
    "ParkedRecord",
    "PartitionPlan",
    "Position",
    "Redrive",
    "RedrivePlan",
    "Replay",
    "Result",
    "Target",
    "Throttle",
    "Watcher",
    "error_topics_of",
    "key_of",
    "plan_redrive",
    "time_of",
]
