"""Parked records: read an app's error topics, replay records, drop records."""

from laneway.admin._action import Action, Drop, Replay
from laneway.admin._error_log import ErrorLog, OpenRange
from laneway.admin._error_topic import ErrorTopic, Target, error_topics_of
from laneway.admin._filter import Filter, FilterError
from laneway.admin._parked import ParkedRecord, Position
from laneway.admin._rate_limit import RateLimit
from laneway.admin._redrive import Redrive, Result
from laneway.admin._redrive_plan import LeftOut, PartitionPlan, RedrivePlan, plan_redrive

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
    "RateLimit",
    "Redrive",
    "RedrivePlan",
    "Replay",
    "Result",
    "Target",
    "error_topics_of",
    "plan_redrive",
]
