"""ErrorLog: an error topic on its brokers: its records, and which of them are open."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from laneway._core.finished_map import moved_on
from laneway._kafka import Admin, AssignedConsumer, BrokerUnavailableError, GroupOffsets, OffsetRange
from laneway.admin._parked import ParkedRecord
from laneway.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import timedelta

    from laneway.admin._error_topic import ErrorTopic
    from laneway.admin._parked import Position

__all__ = ["ErrorLog", "OpenRange"]

T = TypeVar("T")

_CHUNK = 50  # records fetched at once: 50 MiB of the largest that brokers accept by default
_WAIT = 0.2  # seconds of one fetch; a stop is checked in between
_PATIENCE = 5.0  # seconds for the first answer; a user is waiting
_SILENCE = 30.0  # seconds without a record before brokers count as unavailable: longer than a restart of one
_COORDINATOR = 10.0  # seconds for the group's coordinator to load, which the first request triggers


@dataclass(frozen=True, slots=True)
class OpenRange:
    """What one partition of an error topic holds: records from *start*, open ones from *open*, none from *end*."""

    start: int
    open: int
    end: int
    committed: int | None
    """The group's offset; None when nothing was ever done."""

    @classmethod
    def of(cls, start: int, end: int, committed: int | None) -> OpenRange:
        """Compare a committed offset with the log.

        An offset past the end belongs to an earlier topic of this name, so everything is open.
        """
        is_known = committed is not None and committed <= end
        return cls(start, max(start, committed) if is_known and committed is not None else start, end, committed)

    @property
    def is_settled(self) -> bool:
        """Whether no offset is open."""
        return self.open >= self.end


class ErrorLog:
    """Reads one error topic and keeps its group's offsets. One thread uses it; use it in a ``with`` block."""

    def __init__(self, topic: ErrorTopic) -> None:
        self.topic = topic
        options = topic.cluster.client_options()
        self._admin = Admin(options)
        self._offsets = GroupOffsets(options, topic.group)
        self._reader: AssignedConsumer | None = None

    def __enter__(self) -> Self:
        """Use it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self._offsets.close()

    def partitions(self) -> dict[str, int]:
        """How many partitions each topic of the cluster has. Requests all topics: requesting one may create it."""
        return self._asked(lambda: self._admin.topics(_PATIENCE))

    def extents(self) -> dict[int, OpenRange]:
        """What each partition holds now; empty when the topic does not exist yet."""
        numbers = list(range(self.partitions().get(self.topic.name, 0)))
        if not numbers:
            return {}
        # The group's offsets first, so that an offset committed in between lies before the ends.
        committed = self.committed(numbers)
        starts = self._asked(lambda: self._admin.starts(self.topic.name, numbers))
        ends = self._asked(lambda: self._admin.ends(self.topic.name, numbers))
        return {number: OpenRange.of(starts[number], ends[number], committed.get(number)) for number in numbers}

    def retention(self, topic: str) -> timedelta | None:
        """How long a topic of the cluster keeps records; None for forever, or without permission to read it."""
        try:
            return self._admin.retention(topic, _PATIENCE)
        except AdminError:
            return None

    def committed(self, partitions: list[int]) -> dict[int, int]:
        """The group's offset of each partition that has one."""
        deadline = time.monotonic() + _COORDINATOR
        while True:
            try:
                return self._offsets.committed(self.topic.name, partitions)
            except BrokerUnavailableError as error:
                if time.monotonic() > deadline:
                    raise self._absent(error) from error
            time.sleep(_WAIT)

    def commit(self, partition: int, offset: int) -> None:
        """Mark everything before *offset* as done; returns when the brokers have the commit."""
        try:
            # With its marker: an offset without one looks like a reset.
            place = (self.topic.name, partition)
            at, text = self._offsets.known([place]).get(place, (None, ""))
            self._offsets.commit_all({place: (offset, text if at == offset else moved_on(text))}, wait=True)
        except AdminError as error:
            if "UNKNOWN_MEMBER_ID" in str(error):
                raise AdminError(self._busy()) from error
            raise

    def require_idle(self) -> None:
        """Refuse while consumers of the group run: they would overwrite the commits made here.

        Raises:
            AdminError: the group has members.
        """
        if self._asked(lambda: self._admin.members(self.topic.group)):
            raise AdminError(self._busy())

    def read(self, partition: int, start: int, end: int) -> Generator[ParkedRecord, None, None]:
        """The records from *start* to *end* (exclusive), a few at a time, in order.

        Raises:
            BrokerUnavailableError: no broker answers.
        """
        if self._reader is None:
            # Records that retention deletes while they are read cannot be recovered.
            self._reader = AssignedConsumer(self.topic.cluster.consumer_options(), skip_lost=True)
        reader = self._reader
        reader.open([OffsetRange(self.topic.name, partition, start, end)])
        heard = time.monotonic()
        try:
            while not reader.is_exhausted:
                records = reader.fetch(_CHUNK, _WAIT)
                for record in records:
                    yield ParkedRecord.of(record)
                if records:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _SILENCE:
                    raise BrokerUnavailableError(
                        f"no answer from Kafka at {self.topic.brokers} for {_SILENCE:.0f} s while reading "
                        f"{self.topic.name}, partition {partition}"
                    )
        finally:
            reader.close()

    def find(self, place: Position, extents: dict[int, OpenRange]) -> ParkedRecord | None:
        """The record at a position, or None."""
        extent = extents.get(place.partition)
        if extent is None or not extent.start <= place.offset < extent.end:
            return None
        with closing(self.read(place.partition, place.offset, place.offset + 1)) as records:
            return next(records, None)

    def _asked(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except BrokerUnavailableError as error:
            raise self._absent(error) from error

    def _absent(self, error: Exception) -> BrokerUnavailableError:
        return BrokerUnavailableError(f"no answer from Kafka at {self.topic.brokers}: {error}")

    def _busy(self) -> str:
        return (
            f"consumers of group {self.topic.group} are running on {self.topic.name}; stop them, or wait until they "
            "have finished, and retry"
        )
