"""FakeConsumer: a member of a consumer group without a broker, for a `WorkerLoop` that is driven step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from laneway._kafka import FencedError, PartitionOwner

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from laneway._clock import WaitingClock
    from laneway._declare.record import Record
    from laneway._kafka import OffsetAndMetadata, Place
    from laneway.errors import AdminError
    from laneway.testing._log import Entry

__all__ = ["FakeConsumer"]


class Readable(Protocol):
    """One partition's log; `laneway.testing._log.Log` is one."""

    start: int
    end: int

    def read(self, start: int, most: int) -> Sequence[Entry]:
        """Up to *most* entries from an offset on."""
        ...


class Owner(PartitionOwner, Protocol):
    """The owner of partitions, for a group that does not wait inside a call until they are given back."""

    def release(self, places: list[Place]) -> float:
        """Begin nothing more of these partitions; returns until when to wait for what was begun."""
        ...

    def is_drained(self, places: list[Place]) -> bool:
        """Whether nothing of released partitions has to be waited for."""
        ...

    def give_back(self, places: list[Place], deadline: float) -> None:
        """Commit what is finished of released partitions, and release them to the group."""
        ...


class Logs(Protocol):
    """The logs of all partitions; a mapping, or a `FakeKafka`."""

    def __getitem__(self, place: Place) -> Readable:
        """The log of a partition."""
        ...


class FakeConsumer:
    """A `RecordSource` and a `CommitStrategy`. What a test asks for happens inside the next read, as with a broker.

    Args:
        logs: what there is to read.
        clock: moved on while nothing comes.
        committed: what the group has committed; commits go there.
        rng: mixes what is read; without it the partitions that are behind come first.
    """

    def __init__(
        self,
        logs: Logs,
        *,
        clock: WaitingClock,
        committed: dict[Place, OffsetAndMetadata] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._logs = logs
        self._owner: Owner
        self._clock = clock
        self._rng = rng
        self.committed = {} if committed is None else committed
        self.epoch = self.passed = 0
        self.is_member = True
        self.is_silent = False
        """Whether commits are not answered."""
        self.trouble: AdminError | None = None
        """What questions and commits end with."""
        self.topics: list[str] = []
        """What it has subscribed to."""
        self.is_closed = False
        self.releasing: list[Place] = []
        """Partitions that the group takes, while what was begun of them is finished."""
        self.deadline = 0.0
        """When those are given back in any case."""
        self._next: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._coming: list[Place] = []
        self._under_way: Mapping[Place, OffsetAndMetadata] | None = None
        self._answers: list[tuple[Mapping[Place, OffsetAndMetadata], AdminError | None]] = []

    @property
    def paused(self) -> set[Place]:
        """The partitions that are not read for now."""
        return self._paused.copy()

    def subscribe(self, topics: Collection[str], owner: PartitionOwner) -> None:
        """Join the group; *owner* gets assigned and revoked partitions."""
        self._owner = cast("Owner", owner)
        self.topics = list(topics)

    def assign(self, places: Iterable[Place]) -> None:
        """The group gives partitions, at the next read."""
        self._coming += places

    def revoke(self, places: Iterable[Place]) -> None:
        """The group takes partitions; returns when they were given back."""
        places = list(places)
        self._owner.revoked(places)
        self._forget(places)

    def release(self, places: Iterable[Place]) -> None:
        """The group takes partitions; nothing is to be read before `give_back` says that they were given back."""
        self.releasing = self._begun(places)
        self.deadline = self._owner.release(self.releasing)

    def give_back(self) -> bool:
        """Give back what was released, once what was begun of it is finished or the time for that is over."""
        if self._clock.monotonic() < self.deadline and not self._owner.is_drained(self.releasing):
            return False
        places, self.releasing = self.releasing, []
        self._owner.give_back(places, self.deadline)
        self._forget(places)
        return True

    @property
    def has_answers(self) -> bool:
        """Whether the next reads have something to say about commits."""
        return bool(self._answers) or (self._under_way is not None and not self.is_silent)

    @property
    def owned(self) -> set[Place]:
        """The partitions of its own, those included that come with the next read."""
        return {*self._next, *self._coming}

    def lose(self, places: Iterable[Place]) -> None:
        """The group has given partitions to others."""
        places = self._begun(places)
        self._owner.lost(places)
        self._forget(places)

    def read(self, most: int, timeout: float) -> list[Record[Any]]:
        """Up to *most* records."""
        if self._coming:
            self._begin()
        if self._under_way is not None and not self.is_silent:
            self._answer()
        for place, at in list(self._next.items()):
            log = self._logs[place]
            if place not in self._paused and not log.start <= at <= log.end:
                self._owner.out_of_range(place, at)
        found: list[Record[Any]] = []
        for place in self._in_turn():
            if place not in self._paused and len(found) < most:
                found += self._given(place, most - len(found))
        if not found:
            self._clock.sleep(timeout)
        return found

    def known(self, places: Iterable[Place], timeout: float) -> dict[Place, OffsetAndMetadata]:
        """What the group has committed."""
        if self.trouble is not None:
            self._clock.sleep(timeout)
            raise self.trouble
        return {place: self.committed[place] for place in places if place in self.committed}

    def commit(self, offsets: Mapping[Place, OffsetAndMetadata]) -> None:
        """Commit at once, behind what is under way."""
        if not self.is_member:
            raise FencedError("the group goes on without this member")
        if self.trouble is not None:
            raise self.trouble
        self._answer()
        self.committed |= offsets

    commit_apart = commit

    def commit_soon(self, offsets: Mapping[Place, OffsetAndMetadata]) -> bool:
        """Commit; the answer comes with a later read."""
        if self._under_way is not None:
            return False
        self._under_way = offsets
        return True

    def answers(self) -> list[tuple[Mapping[Place, OffsetAndMetadata], AdminError | None]]:
        """What became of `commit_soon` since this was last asked."""
        found, self._answers = self._answers, []
        return found

    def apply_pauses(self) -> None:
        """Read no partition that has a reason to be paused, and all others."""
        owned = {place: part for place, part in self._owner.partitions.items() if place in self._next}
        self.pause({place for place, part in owned.items() if part.paused} - self._paused)
        self.resume({place for place, part in owned.items() if not part.paused} & self._paused)

    def pause(self, places: Collection[Place]) -> None:
        """Do not read these for now."""
        self._paused.update(places)

    def resume(self, places: Collection[Place]) -> None:
        """Read these again."""
        self._paused.difference_update(places)

    def seek(self, place: Place, offset: int) -> None:
        """Continue at another offset."""
        self._next[place] = offset

    def close(self) -> None:
        """Give all partitions back and leave the group."""
        if self._next:
            self.revoke(list(self._next))
        self.is_closed = True

    def _begun(self, places: Iterable[Place]) -> list[Place]:
        """Those that its owner has heard of; the others do not come any more."""
        places = list(places)
        self._coming = [place for place in self._coming if place not in places]
        return [place for place in places if place in self._next]

    def _begin(self) -> None:
        self.epoch += 1
        coming, self._coming = self._coming, []
        starts = self._owner.assigned(coming)
        self._next |= {place: starts[place] for place in coming}
        self.apply_pauses()

    def _forget(self, places: list[Place]) -> None:
        self.epoch += 1
        self._paused.difference_update(places)
        for place in places:
            self._next.pop(place, None)

    def _answer(self) -> None:
        if self._under_way is not None:
            error = self.trouble if self.is_member else FencedError("the group goes on without this member")
            if error is None:
                self.committed |= self._under_way
            self._answers.append((self._under_way, error))
            self._under_way = None

    def _in_turn(self) -> list[Place]:
        places = sorted(self._next, key=lambda place: self._next[place])  # those that are behind come first
        if self._rng is not None:
            self._rng.shuffle(places)
        return places

    def _given(self, place: Place, most: int) -> list[Record[Any]]:
        owned, found = self._owner.partitions.get(place), []
        entries = self._logs[place].read(self._next[place], most)
        for entry in entries:
            self._next[place] = entry.offset + 1
            if owned is not None and owned.inherited is not None and owned.inherited.has(entry.offset):
                owned.reached = entry.offset + 1
                self.passed += 1
                continue
            record = entry.as_record(*place)
            record.epoch = self.epoch
            found.append(record)
        if not found and owned is not None and len(entries) < most:
            self._next[place] = owned.reached = max(self._next[place], self._logs[place].end)
        return found
