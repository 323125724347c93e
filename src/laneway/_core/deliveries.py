"""Deliveries: the messages and copies of a handler, from the decision to the answer of the broker."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from laneway._core.decide import ERROR_TOPIC, AwaitAck, Copy, Fate, Outcome, RetryAt, follow, resolve
from laneway._core.events import short_text
from laneway._core.headers import Failure
from laneway._core.messages import CopyMessage, ErrorCopy, Reply, ReplyMessage, RetryCopy
from laneway._core.state import ProcessorState
from laneway._declare.interceptors import name_of
from laneway.errors import ProduceError, TimestampRefusedError, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laneway._core.messages import PendingMessage
    from laneway._core.scheduler import KeyQueue
    from laneway._core.step import Step
    from laneway._declare.record import Record

    Turn = list[KeyQueue[Record[Any]]]

__all__ = ["Deliveries"]


class Deliveries(ProcessorState):
    """Applies what was decided about keys, sends messages and copies, and acts on the answers to them."""

    def _apply(  # noqa: C901 - one match
        self, step: Step, queue: KeyQueue[Record[Any]], over: int | list[Record[Any]], outcomes: Sequence[Outcome]
    ) -> None:
        """Do what was decided about a key."""
        outcomes = [outcome for outcome in outcomes if not step.is_stale(outcome.record)]  # the epoch check
        awaits_ack, until = False, 0.0
        copies: list[PendingMessage] = []
        for outcome in outcomes:
            match outcome:
                case RetryAt(record, at, pause, error, counts):
                    self.events.retried(record, error, pause)
                    queue.error = short_text(error)
                    self.tally.retried += 1
                    record.attempt += counts
                    until = max(until, at)
                case AwaitAck(record, ack):
                    self.acks.wait(ack, record, queue)
                    awaits_ack = True
                case Copy():
                    copy = self._copy(outcome)
                    if copy is not None and outcome.holds_key:
                        copies.append(copy)
                    elif isinstance(copy, RetryCopy):
                        copy.key = queue.key
                        self.outbox.send_unawaited(copy, self._clock.monotonic())
        step.scheduler.advance(queue, over)
        if awaits_ack:
            queue.taken = 1  # it has begun: what a partition that is given away has in it may not be dropped
        if copies or awaits_ack:
            step.scheduler.hold(queue, len(copies) + awaits_ack, until)
            for copy in copies:
                copy.queue = queue
            self._send(copies)
        elif until:
            step.scheduler.postpone(queue, until)
        else:
            step.scheduler.release(queue)

    def _copy(self, outcome: Copy) -> PendingMessage | None:
        """The copy of a record; None when none goes out and the record is finished."""
        record, error = outcome.record, outcome.error
        if outcome.step == ERROR_TOPIC and error is not None:
            return self._error_copy(record, Failure.of(error), error, outcome.superseded)
        if self.deferred is not None:
            # Before it is sent: it may be read and dealt with before its acknowledgement is here.
            key = self.spec.lane_key(record)
            if key is not None:
                self.deferred.joined(record.partition, key, outcome.step)
        return self._writer.for_retry(record, outcome.step, error, outcome.superseded)

    def _error_copy(
        self, record: Record[Any], failure: Failure, error: Exception, superseded: Sequence[Record[Any]]
    ) -> ErrorCopy | None:
        copy = self._writer.for_error(record, failure, error, superseded)
        if copy is None:
            self._drop(record, failure, superseded)
        return copy

    def _drop(self, record: Record[Any], failure: Failure, superseded: Sequence[Record[Any]]) -> None:
        """No copy goes out: an error interceptor decided so."""
        self.tally.dropped += 1
        self.events.dropped(record, failure)
        self._finish((record,))
        self._supersede(superseded)

    def _send(self, copies: Sequence[PendingMessage]) -> None:
        """Send copies side by side, or one after the other where their order on the topic counts.

        A copy that is repeated would come behind one that was sent after it.
        """
        if len(copies) > 1 and self.spec.parks_behind:
            for copy, following in pairwise(copies):
                copy.next = following
            copies = copies[:1]
        for copy in copies:
            self.outbox.send(copy)

    def _produce(self, reply: Reply, messages: Sequence[Any]) -> None:
        """Send what a handler returned; its records are finished when the last message has arrived."""
        if not messages:
            self._replied(reply)
        for message in messages:
            self.outbox.send(ReplyMessage(message, reply))

    def _replied(self, reply: Reply) -> None:
        self._handled(reply.records)
        self._supersede([old for record in reply.records for old in reply.older_than(record)])

    def _handled(self, records: Sequence[Record[Any]]) -> None:
        self.tally.handled += len(records)
        if self.events.wants_ends:
            self.events.handled(records)
        self._confirm(records)

    def copy_rows(self, records: Sequence[Record[Any]], error: Exception, step: int) -> None:
        """Send rows of a table that failed, which no queue holds, to a retry topic or the error topic."""
        own = self.step_of(records[0].topic)
        if own.spec.source:  # what they had when they were first read is not restored yet
            calls = [record.attempt for record in records]
            own.restored(records, self.tally, self._clock, self.events)
            for record, count in zip(records, calls, strict=True):
                record.attempt = record.before + count
        copies = [self._copy(Copy(record, step, error)) for record in records]
        self._send([copy for copy in copies if copy is not None])

    def _complete(self, now: float) -> None:
        """Act on the answers to messages."""
        outbox = self.outbox
        if not outbox.pending:
            outbox.late = ()
            return
        landed: list[RetryCopy] = []
        for message, error in outbox.poll(now):
            if error is None:
                self._arrived(message, landed)
            else:
                self._failed(message, error, now)
        if landed:
            self._finish([copy.record for copy in landed])
            self._supersede([old for copy in landed for old in copy.superseded])
        outbox.send_due(now)
        for copy in outbox.late_copies(now):
            copy.is_late = True
            self._late.setdefault((self.step_of(copy.record.topic).spec.step, copy.key), []).append(copy)

    def _arrived(self, message: PendingMessage, landed: list[RetryCopy]) -> None:
        """Every in-sync replica has a message; copies on retry topics are finished together."""
        match message:
            case ReplyMessage():
                reply = message.reply
                reply.left -= 1
                if not reply.left:
                    self._replied(reply)
            case RetryCopy():
                self.tally.deferred += 1
                self.events.deferred(message.record, message.failure, message.step)
                landed.append(message)
            case ErrorCopy():
                self.tally.parked += 1
                self.tally.reduced += message.reduced != ""
                self.events.parked(message.record, message.failure, message.encoded[0])
                self._finish((message.record,))
                self._supersede(message.superseded)
        self._over(message)

    def _over(self, message: PendingMessage) -> None:
        """A message needs no further try; its key continues if it waited for nothing else."""
        if isinstance(message, CopyMessage):
            message.is_over = True
            if message.is_late:
                name = (self.step_of(message.record.topic).spec.step, message.key)
                self._late[name].remove(message)
                if not self._late[name]:
                    del self._late[name]
        self.outbox.over(message)
        if message.queue is not None:
            self.step_of(message.records[0].topic).scheduler.arrived(message.queue)

    def _failed(self, message: PendingMessage, error: Exception, now: float) -> None:
        """A try to send a message failed."""
        if not isinstance(message, ErrorCopy):
            fate, _ = resolve(message, error, waits=False, headers_size=0)
            if fate is Fate.GIVE_UP:
                self._give_up(message, error)
            else:
                self.outbox.repeat(message, error, now)
            return
        record, waits = message.record, self.spec.oversize == "wait"
        fate, reduced = resolve(message, error, waits=waits, headers_size=self._writer.headers_size(record))
        if fate is not Fate.REPLACE and self._is_rescued(record, error):
            self.tally.rescued += 1
            self._finish((record,))
            self._supersede(message.superseded)
            self._over(message)
            return
        if fate is Fate.REPEAT:
            if isinstance(error, TimestampRefusedError):
                # A header says the record's own time; that of the copy is better than none.
                message.encoded = (*message.encoded[:5], None)
            self.outbox.repeat(message, error, now)
            return
        message.reduced = reduced
        encoded = self._writer.encoded(record, message.failure, message.cause, reduced)
        if encoded is None:
            self._drop(record, message.failure, message.superseded)
            self._over(message)
        elif fate is Fate.REPLACE:
            message.encoded = encoded
            self.outbox.replace(message, now)
        else:
            message.encoded = encoded
            self.outbox.repeat(message, error, now)

    def _give_up(self, message: PendingMessage, error: Exception) -> None:
        """A message can never be delivered: its records are parked."""
        copies: list[PendingMessage] = []
        if isinstance(message, RetryCopy):
            record = message.record
            if self.deferred is not None:
                self.deferred.left(record.partition, self.spec.lane_key(record), message.step)
            failure = message.failure or Failure.of(error)
            copy = self._error_copy(record, failure, message.cause or error, message.superseded)
            if copy is not None:
                copy.take_over(message)
                if copy.queue is None:
                    self.outbox.watch(copy)
                copies.append(copy)
        elif isinstance(message, ReplyMessage) and not (message.records and message.reply.is_parked):
            reply, why = message.reply, f"a message for {message.encoded[0]} cannot be delivered: {text_of(error)}"
            reply.is_parked = True
            cause = ProduceError(why)
            for record in reply.records:
                copy = self._error_copy(record, Failure.of(cause), cause, reply.older_than(record))
                if copy is not None:
                    copies.append(copy)
            if not reply.records:
                self.events.note(
                    f"{why}; it is given up, since every record of its batch was marked and none can be parked"
                )
        self._over(message)
        self._send(copies)

    def _is_rescued(self, record: Record[Any], error: Exception) -> bool:
        """Ask the last step, which may have a place for the record where no topic has."""
        for function in self.spec.interceptors.last:
            try:
                if function(record, error) is True:
                    return True
            except Exception as failed:  # noqa: BLE001 - user code; the copy is tried again all the same
                self.events.interceptor_failed(name_of(function), record, failed)
        return False

    def _withdraw_stale(self) -> None:
        """Messages of records that another process has by now are not sent again."""
        gone = [
            message
            for message in self.outbox.waiting()
            if message.records and all(self.step_of(record.topic).is_foreign(record) for record in message.records)
        ]
        if gone:
            self.outbox.withdraw(gone)
            for message in gone:
                self._over(message)

    def _act_on_acks(self, now: float) -> None:
        """Act on what was said of records that their handler has left."""
        for ack, (record, queue) in self.acks.poll():
            step = self.step_of(record.topic)
            if ack.is_over and ack.error is not None and not step.is_stale(record):
                outcome = follow(record, ack.error, step.spec, now=now, has_key=queue is not None)
                if queue is not None:
                    queue.held -= 1
                    self._apply(step, queue, int(isinstance(outcome, Copy)), [outcome])
                elif isinstance(outcome, Copy) and (copy := self._copy(outcome)) is not None:
                    self._send([copy])
                continue
            if queue is not None:
                step.scheduler.advance(queue, 1)
                step.scheduler.arrived(queue)
            if ack.is_over and ack.error is None:
                self._handled((record,))
