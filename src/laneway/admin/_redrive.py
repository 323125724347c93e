"""Redrive: replays or drops the records of a plan without losing any other.

Kafka keeps one committed offset per partition: records before it are done, records from it on are open. A single
record in the middle cannot be marked as done. So to finish some open records of a partition:

1. The open records are read in order, up to the last chosen one. A chosen record is sent to where it came from (a
   replay), or nothing is sent (a drop). A record that is not chosen is appended again to the same partition of the
   error topic, with the same key, value, headers and timestamp.
2. Only when all in-sync replicas have acknowledged all of that, the group's offset is committed past it. The appended
   copies lie behind that offset, so these records stay open, once.

This happens for one window of records at a time (`_WINDOW`), each with its commit. So every open record is always at
or past the committed offset. If the process ends in between, even by SIGKILL, the records of one window may exist
twice: they are replayed or listed twice, never lost.

A record that its topic refuses, for example because it is too large, is appended again like one that was not chosen.

All of this needs that no other process commits offsets of the group. So the offset is compared before every commit,
and if it has moved, the redrive ends. Kafka cannot compare and commit in one step: two commands that start at the same
moment may both replay the records of a window, but they lose none.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from laneway._clock import SystemClock
from laneway.admin._redrive_plan import LeftOut
from laneway.errors import AdminError, LanewayError, MessageTooLargeError
from laneway.typing import Sender

if TYPE_CHECKING:
    from laneway._clock import Clock
    from laneway.admin._error_log import ErrorLog
    from laneway.admin._parked import ParkedRecord
    from laneway.admin._redrive_plan import Action, PartitionPlan, RedrivePlan

__all__ = ["Redrive", "Result", "Throttle", "Watcher"]

_NAP = 0.1  # seconds of one sleep; a stop is checked in between
_WINDOW = 500  # records between two commits, which is what an interruption may repeat
_WINDOW_SIZE = 16 << 20  # bytes; records are kept until they are acknowledged
_WINDOW_TIME = 2.0  # seconds; limits what a slow replay may repeat


class Watcher:
    """Watches a redrive and may stop it. This one does neither; a caller derives its own."""

    is_stopping: bool = False
    """Checked often. When true, records in flight are finished and committed, and no more are started."""

    def started(self) -> None:
        """A chosen record was started."""


class Throttle:
    """Makes the caller wait for its turn. Unused time does not allow a burst later."""

    def __init__(self, rate: float | None = None, clock: Clock | None = None) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._clock = clock or SystemClock()
        self._next = self._clock.monotonic()

    def await_turn(self, watcher: Watcher) -> bool:
        """Wait for the next turn; False when a stop comes first."""
        while (left := self._next - self._clock.monotonic()) > 0:
            if watcher.is_stopping:
                return False
            time.sleep(min(left, _NAP))
        self._next = max(self._next, self._clock.monotonic() - self._interval) + self._interval
        return not watcher.is_stopping


class _Flushing(Sender, Protocol):
    """A sender that can be flushed."""

    def flush(self, timeout: float) -> int: ...


@dataclass(slots=True)
class Result:
    """What was done."""

    done: int = 0
    """Chosen records that are done and committed."""
    kept: int = 0
    """Records that were not chosen and were appended again; they stay open."""
    repeatable: int = 0
    """Chosen records that were replayed or dropped but not committed; they are still open."""
    refused: dict[str, LeftOut] = field(default_factory=dict)
    """Chosen records that their topic refused, by reason; they stay open."""
    trouble: str | None = None
    """Why it ended early."""
    was_stopped: bool = False
    """Whether a stop ended it early."""


class _Entry:
    """One record of a window until its delivery is known."""

    __slots__ = ("error", "is_answered", "is_chosen", "parked")

    def __init__(self, parked: ParkedRecord, *, is_chosen: bool) -> None:
        self.parked = parked
        self.is_chosen = is_chosen
        self.await_answer()

    def await_answer(self) -> None:
        self.is_answered = False
        self.error: Exception | None = None

    def delivered(self, error: Exception | None) -> None:
        self.is_answered, self.error = True, error

    @property
    def is_safe(self) -> bool:
        """Whether the group's offset may pass it without loss."""
        return self.is_answered and self.error is None


class Redrive:
    """Executes a plan on one error topic. One thread uses it."""

    def __init__(
        self,
        log: ErrorLog,
        action: Action,
        sender: _Flushing,
        *,
        pace: Throttle | None = None,
        watcher: Watcher | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._log = log
        self._action = action
        self._sender = sender
        self._pace = pace or Throttle()
        self._watcher = watcher or Watcher()
        self._clock = clock or SystemClock()
        self._window: list[_Entry] = []
        self._size = 0
        self._began = 0.0
        self.result = Result()
        """What was done so far."""

    def run(self, plan: RedrivePlan) -> Result:
        """Execute the plan until its end, a stop, or an error that makes it unsafe to continue."""
        result = self.result
        for share in plan.shares:
            try:
                self._carry(share)
            except LanewayError as error:
                result.trouble = str(error)
            if result.trouble or result.was_stopped:
                break
        return result

    def _carry(self, share: PartitionPlan) -> None:
        """Process one partition."""
        committed = share.committed
        self._require_unmoved(share.partition, committed)
        with closing(self._log.read(share.partition, share.start, share.end)) as records:
            try:
                for parked in records:
                    if not self._take(parked):
                        self.result.was_stopped = True
                        break
                    if self._is_full():
                        committed = self._settle(share.partition, committed)
                    if self.result.trouble:
                        return
            except LanewayError as error:
                self.result.trouble = str(error)  # reading failed; records already sent are still settled
        self._settle(share.partition, committed)

    def _take(self, parked: ParkedRecord) -> bool:
        """Start a record; False when a stop comes first."""
        is_chosen = self._action.choose(parked) is True
        if self._watcher.is_stopping or (is_chosen and not self._pace.await_turn(self._watcher)):
            return False
        entry = _Entry(parked, is_chosen=is_chosen)
        if not self._window:
            self._began = self._clock.monotonic()
        self._window.append(entry)
        self._size += parked.size
        if is_chosen:
            self._watcher.started()
        self._send(entry)
        self._sender.poll()
        return True

    def _is_full(self) -> bool:
        is_old = self._clock.monotonic() - self._began >= _WINDOW_TIME
        return len(self._window) >= _WINDOW or self._size >= _WINDOW_SIZE or is_old

    def _send(self, entry: _Entry) -> None:
        """Perform the action on a record; its delivery is known later."""
        entry.await_answer()
        try:
            if entry.is_chosen:
                self._action.perform(entry.parked, self._sender, entry.delivered)
            else:
                self._append_again(entry)
        except (TypeError, ValueError) as error:
            entry.delivered(error)  # a header that the client refuses

    def _append_again(self, entry: _Entry) -> None:
        """Append a record unchanged to its own partition."""
        parked = entry.parked
        self._sender.send(
            parked.topic,
            key=parked.key,
            value=parked.value,
            headers=parked.headers,
            delivered=entry.delivered,
            partition=parked.place.partition,
            timestamp=parked.timestamp,
        )

    def _settle(self, partition: int, committed: int | None) -> int | None:
        """Wait for all deliveries, and commit as far as that is safe.

        Returns:
            The group's offset now.
        """
        window, self._window, self._size = self._window, [], 0
        if not window:
            return committed
        self._await_answers()
        for entry in window:
            if isinstance(entry.error, MessageTooLargeError):
                # Brokers refuse whole requests, so a small message may be refused because of a large one.
                self._send(entry)
                self._await_answers()
        refused = [(entry, entry.error) for entry in window if entry.is_chosen and entry.error is not None]
        for entry, _error in refused:
            entry.is_chosen = False
            self._send(entry)
        self._await_answers()
        safe = 0
        while safe < len(window) and window[safe].is_safe:
            safe += 1
        position = window[safe - 1].parked.place.offset + 1 if safe else None
        try:
            if position is not None:
                self._require_unmoved(partition, committed)
                self._log.commit(partition, position)
        except LanewayError as error:
            self.result.trouble = str(error)
            self.result.repeatable += sum(entry.is_chosen and entry.is_safe for entry in window)
            return committed
        self._count(window, safe, refused)
        return committed if position is None else position

    def _await_answers(self) -> None:
        # Every delivery is known after the producer's time limit at the latest.
        while self._sender.flush(0.5):
            pass

    def _require_unmoved(self, partition: int, expected: int | None) -> None:
        found = self._log.committed([partition]).get(partition)
        if found != expected:
            topic = self._log.topic
            raise AdminError(
                f"another process moved the offset of group {topic.group} on {topic.name}, partition {partition} "
                f"(expected {_offset(expected)}, found {_offset(found)}). Nothing was lost; list the records and retry"
            )

    def _count(self, entries: list[_Entry], safe: int, refused: list[tuple[_Entry, Exception]]) -> None:
        result = self.result
        mistaken = {id(entry) for entry, _ in refused}
        result.done += sum(entry.is_chosen for entry in entries[:safe])
        result.kept += sum(not entry.is_chosen and id(entry) not in mistaken for entry in entries[:safe])
        result.repeatable += sum(entry.is_chosen and entry.is_safe for entry in entries[safe:])
        for entry, error in refused:
            result.refused.setdefault(str(error), LeftOut()).add(entry.parked.place)
            if not isinstance(error, MessageTooLargeError) and result.trouble is None:
                # Too large concerns one record; any other error would affect all that follow.
                result.trouble = f"{entry.parked.place} was refused: {error}"
        if safe < len(entries):
            entry = entries[safe]
            result.trouble = f"cannot append {entry.parked.place} to {entry.parked.topic} again: {entry.error}"


def _offset(offset: int | None) -> str:
    return "not set" if offset is None else str(offset)
