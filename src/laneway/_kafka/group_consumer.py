"""GroupConsumer: one member of a consumer group, which reads its assigned partitions."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from laneway._declare.record import Record
from laneway._kafka.client import quiet
from laneway._kafka.errors import BrokerUnavailableError, as_admin_error, is_auth_error
from laneway._kafka.group import commit_apart, known_to
from laneway.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from laneway._core.finished_map import FinishedMap
    from laneway._kafka.group import OffsetAndMetadata, Place
    from laneway.errors import AdminError

__all__ = ["GroupConsumer", "OwnedPartition", "PartitionOwner"]

_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001 - public, see _errors
_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)  # noqa: SLF001
_APART = 5.0  # seconds per request of a commit on a separate connection
_NO_ANSWER = 60.0  # seconds to wait for a commit's answer; the client gives up long before


class OwnedPartition(Protocol):
    """What the consumer needs of an assigned partition."""

    inherited: FinishedMap | None
    """Records to skip, because an earlier owner has finished them."""
    reached: int
    """The read position, past gaps and past records that were already finished."""

    @property
    def paused(self) -> AbstractSet[object]:
        """Why it is paused; it is read while this is empty."""


class PartitionOwner(Protocol):
    """Receives the decisions of the group; called inside `read` and `close`, on the same thread."""

    @property
    def partitions(self) -> Mapping[Place, OwnedPartition]: ...

    def assigned(self, places: list[Place]) -> Mapping[Place, int]:
        """These partitions are assigned; returns the offset to read each from."""

    def revoked(self, places: list[Place]) -> None:
        """These partitions are revoked; when this returns, another member may own them."""

    def lost(self, places: list[Place]) -> None:
        """These partitions are lost; another member may own them already."""

    def out_of_range(self, place: Place, offset: int) -> None:
        """The offset to read is not in the log."""

    def troubled(self, place: Place, error: str) -> None:
        """A partition cannot be read at present."""


class GroupConsumer:
    """Reads and commits as a member of a consumer group.

    Not thread-safe: one thread reads. Create it after a fork.

    Args:
        options: librdkafka options, as `ClusterSettings.consumer_options` gives them.
        group: the group's name.
        client: options of any client of the cluster, for `commit_apart`, which fails without them.
    """

    def __init__(self, options: Mapping[str, Any], group: str, client: Mapping[str, Any] | None = None) -> None:
        self._owner: PartitionOwner
        self._group = group
        self._client = client
        options = {
            **quiet(options),
            "group.id": group,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "on_commit": self._on_commit,
        }
        self._is_cooperative = "cooperative" in str(options.get("partition.assignment.strategy", "cooperative"))
        self._consumer = Consumer(options)
        self._topics: dict[str, str] = {}
        self._gone: deque[tuple[Place, int]] = deque()
        """Partitions whose offset is not in the log, with that offset; the owner is called at the next read."""
        self._under_way: Mapping[Place, OffsetAndMetadata] | None = None
        self._sent_at = 0.0
        self._answers: list[tuple[Mapping[Place, OffsetAndMetadata], AdminError | None]] = []
        self._paused: set[Place] = set()
        self._marks: list[tuple[OwnedPartition, int]] = []
        """Read positions of partitions after the last read."""
        self.passed = 0
        """How many records were skipped, because an earlier owner had finished them."""
        self.epoch = 0

    def subscribe(self, topics: Collection[str], owner: PartitionOwner) -> None:
        """Join the group; the owner receives its assignments and revocations."""
        self._owner = owner
        self._topics = {topic: topic for topic in topics}
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def read(self, most: int, timeout: float) -> list[Record[Any]]:
        """Up to *most* records, as soon as there are some, waiting no longer than *timeout* seconds."""
        # Not when they were seen: another thread that asks how far a partition is must not find the mark before the
        # records that came with it.
        for partition, offset in self._marks:
            partition.reached = offset
        self._marks.clear()
        if self._gone:
            # Not when it was reported: records read before it in the same call had not been returned then. One at a
            # time: each needs a request to brokers, and the group waits.
            self._owner.out_of_range(*self._gone.popleft())
        # consume() waits until it has the requested number; poll() returns with the first.
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        # Its partition may be revoked while the others are read; this record keeps the earlier epoch.
        records = self._records([first])
        if most > 1:
            records += self._records(self._consumer.consume(most - 1, 0))
        return records

    def _records(self, messages: list[Any]) -> list[Record[Any]]:
        topics, owned, epoch = self._topics, self._owner.partitions, self.epoch
        inherits = any(partition.inherited is not None for partition in owned.values())
        records: list[Record[Any]] = []
        for message in messages:
            if message.error() is not None:
                self._notice(message)
                continue
            topic, partition, offset = topics[message.topic()], message.partition(), message.offset()
            if inherits and self._is_finished((topic, partition), offset):
                continue
            key, raw = message.key(), message.value()
            size = (0 if raw is None else len(raw)) + (0 if key is None else len(key))
            headers = message.headers() or ()
            stamp = message.timestamp()[1]
            records.append(Record(topic, partition, offset, stamp, key, raw, headers, size, raw, 1, 0, None, epoch))
        return records

    def known(self, places: Iterable[Place], timeout: float) -> dict[Place, OffsetAndMetadata]:
        """Committed offsets of the group.

        Raises:
            BrokerUnavailableError: the group's coordinator did not answer or is not ready.
        """
        return known_to(self._consumer, places, timeout)

    def commit(self, offsets: Mapping[Place, OffsetAndMetadata]) -> None:
        """Commit, and return when the broker has it.

        Raises:
            BrokerUnavailableError: the commit failed; a retry may succeed.
            FencedError: the group has removed this member.
        """
        if not offsets:
            return
        try:
            answers = self._consumer.commit(offsets=_places(offsets), asynchronous=False)
        except KafkaException as error:
            raise as_admin_error(error) from error
        for answer in answers or ():
            if answer.error is not None:
                raise as_admin_error(KafkaException(answer.error))

    def commit_apart(self, offsets: Mapping[Place, OffsetAndMetadata]) -> None:
        """Commit without waiting for a rebalance that blocks the member's own connection.

        Raises:
            AdminError: it is unknown whether the commit happened.
        """
        if self._client is None:
            raise BrokerUnavailableError("there is no other connection")
        commit_apart(self._client, self._group, self.metadata(), offsets, _APART)

    def commit_soon(self, offsets: Mapping[Place, OffsetAndMetadata]) -> bool:
        """Send a commit, whose answer comes with a later read; False, without effect, while one is in flight.

        With two in flight a broken connection could repeat the first after the second, and the group's offsets would go
        backwards.
        """
        if self._under_way is not None:
            if time.monotonic() - self._sent_at < _NO_ANSWER:
                return False
            self._answer(BrokerUnavailableError("no answer came"))
        self._under_way, self._sent_at = offsets, time.monotonic()
        try:
            self._consumer.commit(offsets=_places(offsets), asynchronous=True)
        except KafkaException as error:
            self._answer(as_admin_error(error))
        return True

    def answers(self) -> list[tuple[Mapping[Place, OffsetAndMetadata], AdminError | None]]:
        """The results of `commit_soon` since the last call: None, or the error."""
        found, self._answers = self._answers, []
        return found

    @property
    def is_member(self) -> bool:
        """Whether the client is a member. A client that is not could commit to an empty group."""
        return bool(self._consumer.memberid())

    def metadata(self) -> Any:
        """This member's identity in the group, for a producer that commits its offsets in a transaction."""
        return self._consumer.consumer_group_metadata()

    def _on_commit(self, error: Any, partitions: list[Any]) -> None:
        found = {(part.topic, part.partition): part.offset for part in partitions}
        if self._under_way is None or found != {place: offset for place, (offset, _) in self._under_way.items()}:
            return  # one that was given up, or that another thread waits for
        errors = [part.error for part in partitions if part.error is not None]
        error = error or (errors[0] if errors else None)
        self._answer(None if error is None else as_admin_error(KafkaException(error)))

    def _answer(self, error: AdminError | None) -> None:
        if self._under_way is not None:
            self._answers.append((self._under_way, error))
            self._under_way = None

    def apply_pauses(self) -> None:
        """Pause partitions with a reason to be paused, and resume all others.

        A paused partition's prefetched records are fetched again later, so do not call it often.
        """
        owned = {place: part for place, part in self._owner.partitions.items() if place[0] in self._topics}
        new = [place for place, part in owned.items() if part.paused and place not in self._paused]
        old = [place for place, part in owned.items() if not part.paused and place in self._paused]
        self._paused.update(new)
        self._paused.difference_update(old)
        if new:
            self._consumer.pause([TopicPartition(*place) for place in new])
        if old:
            self._consumer.resume([TopicPartition(*place) for place in old])

    def seek(self, place: Place, offset: int) -> None:
        """Continue at another offset, after one was out of range or the topic was recreated."""
        self._gone = deque(gone for gone in self._gone if gone[0] != place)
        where = TopicPartition(*place, offset)
        # Not seek(): librdkafka refuses it for a partition that stopped fetching after an offset error.
        self._consumer.incremental_unassign([where])
        self._consumer.incremental_assign([where])
        if place in self._paused:
            self._consumer.pause([where])

    def close(self) -> None:
        """Give up all partitions and leave the group."""
        self._consumer.close()

    def _is_finished(self, place: Place, offset: int) -> bool:
        partition = self._owner.partitions.get(place)
        # It is kept even when it is passed: it goes into commits until all before its end is in our own books.
        if partition is None or partition.inherited is None or not partition.inherited.has(offset):
            return False
        self.passed += 1
        self._marks.append((partition, offset + 1))
        return True

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self.epoch += 1
        places = [(part.topic, part.partition) for part in partitions]
        starts = self._owner.assigned(places)
        given = [TopicPartition(*place, starts[place]) for place in places]
        (consumer.incremental_assign if self._is_cooperative else consumer.assign)(given)
        self.apply_pauses()

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._owner.revoked([(part.topic, part.partition) for part in partitions])
        self._unassign(consumer, partitions)

    def _on_lost(self, consumer: Any, partitions: list[Any]) -> None:
        self._owner.lost([(part.topic, part.partition) for part in partitions])
        self._unassign(consumer, partitions)

    def _forget(self, partitions: list[Any]) -> None:
        self.epoch += 1
        places = [(part.topic, part.partition) for part in partitions]
        self._paused.difference_update(places)
        self._gone = deque(gone for gone in self._gone if gone[0] not in places)

    def _unassign(self, consumer: Any, partitions: list[Any]) -> None:
        self._forget(partitions)
        if self._is_cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _notice(self, message: Any) -> None:
        """Handle an event that is no record."""
        error, place = message.error(), (message.topic(), message.partition())
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - public, see _errors
            if place in self._owner.partitions:
                self._marks.append((self._owner.partitions[place], message.offset()))
        elif code in _GONE:
            self._gone.append((place, message.offset()))
        elif is_auth_error(error) or error.fatal():
            raise EngineError(f"{place[0]}: {error.name()}: {error.str()}")
        elif code in _MISSING:
            self._owner.troubled(place, error.str())
        # librdkafka recovers from anything else, such as a lost broker or a moved leader.


def _places(offsets: Mapping[Place, OffsetAndMetadata]) -> list[TopicPartition]:
    return [TopicPartition(*place, offset, metadata) for place, (offset, metadata) in offsets.items()]
