"""One record from decode to outcome, the same on every engine. Pure: no thread, client or clock of its own."""

from laneway.pipeline._desk import Desk
from laneway.pipeline._execute import Call, Result
from laneway.pipeline._outbox import Outbox

__all__ = ["Call", "Desk", "Outbox", "Result"]
