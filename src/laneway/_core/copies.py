"""Copies: records that go to a retry or error topic. They are finished there, and only when the copy is safe."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from laneway._core.headers import Failure, Reduction, deferred_headers, own_size, parked_headers
from laneway._core.interceptors import Censor
from laneway._core.outbox import Letter, is_hopeless
from laneway._core.parked_copy import ParkedCopy
from laneway._declare.interceptors import name_of
from laneway._declare.retry import Defer

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from laneway._clock import Clock
    from laneway._core.outbox import Outbox
    from laneway._core.overdue import Overdue
    from laneway._core.parked_copy import Make
    from laneway._core.result import Posted
    from laneway._core.telling import Telling
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Headers, Record
    from laneway._declare.retry import Park
    from laneway.observe import Tally

__all__ = ["Copies"]

_Job = Callable[[Callable[[], None]], None]
"""Sends one copy, and calls what it is given when the copy is safe."""


class Copies:
    """Writes the copies of one route's failed records. The desk owns it.

    Args:
        route: whose records these are.
        app: the app's name.
        outbox: what sends them.
        overdue: holds back the keys of those that are late.
        tally: where they are counted.
        telling: what tells of them.
        clock: the time.
        finish: told of records whose copy is safe.
        joined: told of a record whose copy is on its way to the retry topic of a step: whoever reads that topic may be
            done with it before the acknowledgement is here.
        turned_back: told when that copy can never be written there.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each by its keyword
        self,
        route: HandlerSpec,
        app: str,
        *,
        outbox: Outbox,
        overdue: Overdue,
        tally: Tally,
        telling: Telling,
        clock: Clock,
        finish: Callable[[Sequence[Record[Any]]], None],
        joined: Callable[[Record[Any], int], None],
        turned_back: Callable[[Record[Any], int], None],
    ) -> None:
        self.route = route
        self._app = app if route.rerun is None else route.rerun.app
        self._outbox = outbox
        self.overdue = overdue
        self._tally = tally
        self._telling = telling
        self._clock = clock
        self._finish = finish
        self._joined = joined
        self._turned_back = turned_back
        self._is_in_turn = route.parks_behind
        self._error_topic = route.error_topic_of(self._app)
        self._retry_topics = route.retry_topics_of(self._app)
        self._delays = [round(delay.total_seconds() * 1000) for delay in route.retry.delays]
        self._last = route.interceptors.last
        interceptors = route.interceptors.error
        self._censor = Censor(interceptors, telling.interceptor_failed) if interceptors else None
        self._landed: list[_Deferred] = []
        """Copies that are safe on retry topics, and whose records are still to be finished in this tick."""
        outbox.landed = self._finish_landed

    def send(self, record: Record[Any], error: Exception, verdict: Defer | Park, then: Callable[[], None]) -> None:
        """Copy a record to where the verdict says; *then* is called when the copy is safe."""
        self._run_one(self._job(record, error, verdict), then)

    def send_along(self, record: Record[Any], error: Exception, verdict: Defer, key: Hashable) -> None:
        """As `send`, together with others: the records of the key go on meanwhile, unless it takes too long."""
        step, cause = verdict.step, error if self._censor else None
        place = self._place(record, step)
        copy = _Along(key, self, record, place, Failure.of(error, with_trace=False), step, cause)
        self.overdue.began(copy, self._clock.monotonic())
        self._outbox.collect(copy)

    def send_all(
        self, members: Sequence[tuple[Record[Any], Exception, Defer | Park]], then: Callable[[], None]
    ) -> None:
        """Copy records of one key to where their verdicts say; *then* is called when the last copy is safe."""
        jobs = [self._job(*member) for member in members]
        self._run([job for job in jobs if job is not None], then)

    def queue_behind(self, records: Sequence[Record[Any]], step: int, then: Callable[[], None]) -> None:
        """Copy records that did not fail to a retry topic, behind an earlier one of their key that waits there."""
        self._run([partial(self._defer, record, None, step, None) for record in records], then)

    def _job(self, record: Record[Any], error: Exception, verdict: Defer | Park) -> _Job | None:
        """What copies a record; None when an interceptor lets no copy go out and nothing is left to do."""
        if isinstance(verdict, Defer):
            failure = Failure.of(error, with_trace=False)
            return partial(self._defer, record, failure, verdict.step, error if self._censor else None)
        return self._park(record, Failure.of(error), error)

    def _park(self, record: Record[Any], failure: Failure, error: Exception) -> _Job | None:
        """Decide on the copy for the error topic; None when there is none and the record is finished."""
        make: Make
        if self._censor is None:
            make = partial(self._parked, record, failure)  # the error is let go, with the stack frames that it holds
        else:
            make = partial(self._censored, self._censor, record, failure, error)
        posted = make("")
        if posted is None:
            self.drop(record, failure)
            return None
        return partial(self._send_parked, record, failure, make, posted)

    def _send_parked(
        self,
        record: Record[Any],
        failure: Failure,
        make: Make,
        posted: Posted,
        then: Callable[[], None],
    ) -> None:
        self._outbox.post(ParkedCopy(self, record, posted, then, failure, make))

    @property
    def waits(self) -> bool:
        """Whether a copy that does not fit waits until it does."""
        return self.route.oversize == "wait"

    def headers_size(self, record: Record[Any]) -> int:
        """Bytes of the headers of its own that a copy of a record has."""
        return own_size(record, self.route.error_headers)

    def parked(
        self, record: Record[Any], failure: Failure, topic: str, then: Callable[[], None], *, is_reduced: bool
    ) -> None:
        """A copy is safe on the error topic, whole or smaller."""
        self._tally.parked += 1
        self._tally.reduced += is_reduced
        self._telling.parked(record, failure, topic)
        self._finish((record,))
        then()

    def is_rescued(self, record: Record[Any], error: Exception, then: Callable[[], None]) -> bool:
        """Tell the last step, which may have a place for the record where no topic has."""
        for function in self._last:
            try:
                is_safe = function(record, error) is True
            except Exception as failed:  # noqa: BLE001 - user code; the copy is tried again all the same
                self._telling.interceptor_failed(name_of(function), record, failed)
                continue
            if is_safe:
                self._tally.rescued += 1
                self._finish((record,))
                then()
                return True
        return False

    def drop(self, record: Record[Any], failure: Failure) -> None:
        """No copy goes out: an interceptor decided so."""
        self._tally.dropped += 1
        self._telling.dropped(record, failure)
        self._finish((record,))

    @staticmethod
    def _run_one(job: _Job | None, then: Callable[[], None]) -> None:
        if job is None:
            then()
        else:
            job(then)

    def _run(self, jobs: Sequence[_Job], then: Callable[[], None]) -> None:
        """Send copies side by side, or one after the other where their order on the topic counts.

        A copy that is repeated would come behind one that was sent after it.
        """
        if not jobs:
            then()
        elif len(jobs) == 1:
            jobs[0](then)
        elif self._is_in_turn:
            waiting = iter(jobs)

            def go_on() -> None:
                job = next(waiting, None)
                if job is None:
                    then()
                else:
                    job(go_on)

            go_on()
        else:
            left = len(jobs)

            def landed() -> None:
                nonlocal left
                left -= 1
                if not left:
                    then()

            for job in jobs:
                job(landed)

    def _defer(
        self,
        record: Record[Any],
        failure: Failure | None,
        step: int,
        cause: Exception | None,
        then: Callable[[], None],
    ) -> None:
        copy = _Awaited(then, self, record, self._deferred(record, failure, step), failure, step, cause)
        if not self._outbox.is_void(copy):
            self._joined(record, step)
        self._outbox.post(copy)

    def deferred(self, copy: _Deferred) -> None:
        """A copy is safe on the retry topic of a step; its record is finished together with others."""
        self._tally.deferred += 1
        self._telling.deferred(copy.record, copy.failure, copy.step)
        self._landed.append(copy)

    def _finish_landed(self) -> None:
        landed = self._landed
        if landed:
            self._landed = []
            self._finish([copy.record for copy in landed])
            for copy in landed:
                copy.then()

    def is_parked_instead(self, copy: _Deferred, error: Exception) -> bool:
        """What is too large for a retry topic is parked: a copy without its value could not be handled later."""
        if not is_hopeless(error):
            return False
        self._turned_back(copy.record, copy.step)
        failure = copy.failure or Failure.of(error)
        self._run_one(self._park(copy.record, failure, copy.cause or error), copy.then)
        return True

    def _deferred(self, record: Record[Any], failure: Failure | None, step: int) -> Posted:
        topic, key, value, _, partition, now = self._place(record, step)
        return (topic, key, value, self.deferred_headers(record, failure, step, now), partition, now)

    def _place(self, record: Record[Any], step: int) -> tuple[str, bytes | None, bytes | None, Headers, int, int]:
        """A copy for a retry topic, without its headers."""
        # The same partition: what queues behind a record must be found where that record is. The time of this copy,
        # because the delay is counted from it; the record's own is in a header.
        now = int(self._clock.wall() * 1000)
        return (self._retry_topics[step - 1], record.key, record.raw, (), record.partition, now)

    def deferred_headers(self, record: Record[Any], failure: Failure | None, step: int, now: int) -> Headers:
        """The headers of a copy for a retry topic."""
        due = now + self._delays[step - 1]
        return deferred_headers(record, failure, app=self._app, handler=self.route.name, step=step, due=due)

    def _censored(
        self,
        censor: Censor,
        record: Record[Any],
        failure: Failure,
        error: Exception,
        reduced: Reduction,
    ) -> Posted | None:
        # Also when it is made smaller: what was masked in the first copy must not be in the second.
        return censor.passed(self._parked(record, failure, reduced), record, error)

    def _parked(self, record: Record[Any], failure: Failure, reduced: Reduction) -> Posted:
        route, now, value = (
            self.route,
            int(self._clock.wall() * 1000),
            None if isinstance(reduced, int) else record.raw,
        )
        headers = parked_headers(
            record,
            failure,
            app=self._app,
            handler=route.name,
            now=now,
            reduced=reduced,
            style=route.error_headers,
        )
        # The record's own timestamp and no partition: records of one key stay together on the error topic.
        return (self._error_topic, record.key, value, headers, None, record.timestamp)


class _Deferred(Letter):
    """A copy on its way to a retry topic. A class: a pair of closures is a dozen objects for each record that fails."""

    __slots__ = ("_copies", "cause", "failure", "record", "step")

    def __init__(
        self,
        copies: Copies,
        record: Record[Any],
        posted: Posted,
        failure: Failure | None,
        step: int,
        cause: Exception | None,
    ) -> None:
        super().__init__(posted)
        self._copies = copies
        self.record = record
        self.failure = failure
        self.step = step
        self.cause = cause

    @abstractmethod
    def then(self) -> None:
        """Called when it is safe."""

    @property
    def records(self) -> Sequence[Record[Any]]:
        return (self.record,)

    def landed(self) -> None:
        self._copies.deferred(self)

    def withdrawn(self) -> None:
        self.then()

    def undeliverable(self, error: Exception) -> bool:
        return self._copies.is_parked_instead(self, error)


class _Awaited(_Deferred):
    """One that its key waits for."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[], None], *rest: Any) -> None:
        super().__init__(*rest)
        self._then = then

    def then(self) -> None:
        self._then()


class _Along(_Deferred):
    """One that nobody waits for, unless it is late."""

    __slots__ = ("due", "is_late", "is_over", "key")

    def __init__(self, key: Hashable, *rest: Any) -> None:
        super().__init__(*rest)
        self.key = key
        self.due = 0.0
        self.is_late = self.is_over = False

    def headers(self) -> Headers:
        # Not kept: hundreds of copies are on their way at once, and a dozen headers each push the records that come in
        # meanwhile out of the processor's cache.
        return self._copies.deferred_headers(self.record, self.failure, self.step, self.posted[5] or 0)

    def then(self) -> None:
        self._copies.overdue.ended(self)
