"""One record from decode to outcome, the same on every engine. Pure: no thread, client or clock of its own."""

from laneway.pipeline._acks import Ack
from laneway.pipeline._backlog import Backlog
from laneway.pipeline._breaker import BreakerState
from laneway.pipeline._copied import Copied
from laneway.pipeline._desk import Desk
from laneway.pipeline._execute import Call
from laneway.pipeline._outbox import Outbox
from laneway.pipeline._result import Result

__all__ = ["Ack", "Backlog", "BreakerState", "Call", "Copied", "Desk", "Outbox", "Result"]
