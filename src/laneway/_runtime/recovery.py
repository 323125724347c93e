"""Recovery: what a partition's former owner has left on retry and error topics, looked up before it is read."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from laneway._core.copy_index import CopyIndex
from laneway._core.deferred_keys import DeferredKeys
from laneway._core.headers import parked_at, read_from
from laneway._core.state import Load
from laneway._kafka import AssignedConsumer, OffsetRange
from laneway._runtime.due_offsets import until_answered

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from laneway._core.finished_map import FinishedMap
    from laneway._declare.handler import HandlerSpec
    from laneway._declare.record import Record
    from laneway._kafka import Admin, Place
    from laneway._runtime.handler_worker import HandlerWorker

    _Finding = tuple[HandlerWorker, DeferredKeys, list[CopyIndex]]

__all__ = ["Clients", "LookUp", "Portion", "Recovery", "recover_copies"]


_CHUNK = 500  # records of each partition that are read at first from the end of the error topic
_MOST = 500_000  # a batch that parked more than this is not looked through: its copies may come twice


class _Clients:
    """The clients of one look-up: a reader belongs to one thread."""

    def __init__(self, app: str, admin: Admin, options: Mapping[str, Any]) -> None:
        self.app = app
        self.admin = admin
        self._options = options
        self._readers: dict[str, AssignedConsumer] = {}

    def reader_of(self, topic: str) -> AssignedConsumer:
        if topic not in self._readers:
            self._readers[topic] = AssignedConsumer(self._options, skip_lost=True)
        return self._readers[topic]

    def close(self) -> None:
        for reader in self._readers.values():
            reader.end()


class Recovery:
    """Looks for copies on a thread, one for each assignment, while the loop keeps polling.

    Args:
        app: the app's name.
        workers: those of the handlers.
        admin: asks for the ends of logs.
        options: librdkafka options of a consumer.
    """

    def __init__(self, app: str, workers: Sequence[HandlerWorker], *, admin: Admin, options: Mapping[str, Any]) -> None:
        self._app = app
        self._workers = workers
        self._admin = admin
        self._options = options
        self._running: list[LookUp] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being looked up."""
        return not self._running

    def begin(
        self, source: str, partitions: list[int], starts: Mapping[Place, tuple[int, int]], *, unclean: list[int]
    ) -> list[int]:
        """Start to look things up, if there is anything to look up.

        Args:
            source: the topic.
            partitions: its newly assigned partitions.
            starts: where they and their retry topics are read from, and from when on copies count.
            unclean: those whose former owner may have had something under way.

        Returns:
            The partitions that are not to be read meanwhile.
        """
        parks = [worker for worker in self._of(source) if worker.spec.parks_behind]
        held = partitions if parks else unclean
        if held:
            run = LookUp(self, source, held, starts, unclean)
            self._start(run)
            self._running.append(run)
        return held

    def end(self, source: str, partition: int) -> None:
        """Ignore findings about a revoked partition."""
        for run in self._running:
            run.places.discard((source, partition))

    def done(self) -> list[Place]:
        """Partitions that may be read now.

        Raises:
            Exception: that a look-up failed with.
        """
        over = [run for run in self._running if run.is_over]
        for run in over:
            self._running.remove(run)
            run.apply()
        return [place for run in over for place in run.places]

    def _start(self, run: LookUp) -> None:
        """Begin a look-up, which must not keep the group waiting."""
        threading.Thread(target=run.work, name="laneway-recovery", daemon=True).start()

    def _clients(self) -> _Clients:
        """What one look-up reads with."""
        return _Clients(self._app, self._admin, self._options)

    def look_up(
        self, source: str, partitions: Collection[int], starts: Mapping[Place, tuple[int, int]], unclean: list[int]
    ) -> list[_Finding]:
        """What was left of these partitions; reads until it is known, on the caller's thread."""
        found: list[_Finding] = []
        clients = self._clients()
        try:
            for worker in self._of(source):
                for is_repeated in (True, False):
                    chosen = [part for part in partitions if (part in unclean) == is_repeated]
                    if chosen and (is_repeated or worker.spec.parks_behind):
                        portion, specs = Portion(chosen, starts), [step.spec for step in worker.processor.steps]
                        found.append((worker, *recover_copies(clients, specs, portion, is_repeated=is_repeated)))
        finally:
            clients.close()
        return found

    def _of(self, source: str) -> list[HandlerWorker]:
        return [worker for worker in self._workers if worker.spec.topic.name == source]


class LookUp:
    """One look-up; `work` may run on a thread of its own."""

    def __init__(
        self,
        recovery: Recovery,
        source: str,
        partitions: list[int],
        starts: Mapping[Place, tuple[int, int]],
        unclean: list[int],
    ) -> None:
        self.places = {(source, partition) for partition in partitions}
        self._recovery = recovery
        self._source, self._partitions, self._starts, self._unclean = source, set(partitions), starts, unclean
        self._found: list[_Finding] = []
        self._error: BaseException | None = None
        self.is_over = False

    def apply(self) -> None:
        """Give the workers what was found about partitions that are still owned."""
        if self._error is not None:
            raise self._error
        gone = self._partitions - {partition for _, partition in self.places}
        for worker, deferred, copied in self._found:
            for step, found in zip(worker.processor.steps, copied, strict=True):
                step.copied.merge(found)
            if deferred:
                worker.post(Load(deferred, frozenset(gone)))

    def work(self) -> None:
        """Look up; `apply` gives what was found."""
        try:
            self._found = self._recovery.look_up(self._source, self._partitions, self._starts, self._unclean)
        except BaseException as error:  # noqa: BLE001 - raised on the member's thread
            self._error = error
        self.is_over = True


class Clients(Protocol):
    """What reads the topics of an app."""

    app: str

    @property
    def admin(self) -> Admin:
        """Asks for the ends of logs."""

    def reader_of(self, topic: str) -> AssignedConsumer:
        """Reads a topic."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Some partitions of a source and of its retry topics that are about to be read."""

    partitions: Collection[int]
    since: Mapping[Place, tuple[int, int]]
    """Up to which offset everything is finished, and the time from when on copies count, in milliseconds."""
    ends: Mapping[Place, int] | None = None
    """The ends of the logs of retry topics; None when they are to be asked for."""
    finished: Mapping[Place, FinishedMap] = field(default_factory=dict)
    """What is finished past those offsets."""


def recover_copies(
    clients: Clients, specs: Sequence[HandlerSpec], portion: Portion, *, is_repeated: bool
) -> tuple[DeferredKeys, list[CopyIndex]]:
    """Read what waits on retry topics, and what a killed run has parked; each topic once, for all steps of a handler.

    Only copies that are no older than the position count. After a reset the position is new, and earlier copies of the
    same records are no reason to leave them out.

    Args:
        clients: to read with.
        specs: the handler on its source and on each of its steps.
        portion: what is about to be read.
        is_repeated: a task was tried before, or a run before this one may have worked on the same records.

    Returns:
        The keys that wait, and for each step the copies of its records.
    """
    deferred, copied, spec = DeferredKeys(), [CopyIndex.of(each) for each in specs], specs[0]
    source = spec.source or spec.topic.name
    if spec.parks_behind or is_repeated:
        waiting = _waiting(clients, [each.topic.name for each in specs[1:]], portion)
        for step, higher in enumerate(specs[1:], 1):
            for records in _read(clients, [part for part in waiting if part.topic == higher.topic.name]):
                if is_repeated:
                    for lower, index in zip(specs[:step], copied[:step], strict=True):
                        index.add([copy for copy in records if copy.timestamp >= _time(portion, lower, copy.partition)])
                if spec.parks_behind:
                    left = [copy for copy in records if not _is_finished(portion, copy)]
                    deferred.load(left, step, spec.lane_key, source if is_repeated else None)
    if is_repeated:
        for records in _newly_parked(clients, spec, portion):
            for index in copied:
                index.add(records)
    return deferred, copied


def _time(portion: Portion, spec: HandlerSpec, partition: int) -> int:
    # The timestamp of a copy on a retry topic is the time at which it was made.
    return portion.since.get((spec.topic.name, partition), (0, 0))[1]


def _is_finished(portion: Portion, record: Record[Any]) -> bool:
    finished = portion.finished.get((record.topic, record.partition))
    return finished is not None and finished.has(record.offset)


def _waiting(clients: Clients, topics: Collection[str], portion: Portion) -> list[OffsetRange]:
    """What waits on these retry topics."""
    begin = {place: at for place, (at, _) in portion.since.items() if place[0] in topics}
    begin = {place: at for place, at in begin.items() if place[1] in portion.partitions}

    def look() -> Mapping[Place, int]:
        # Asked for its partitions first, the client learns who leads them now: it does not when an offset is refused.
        numbers = {topic: clients.admin.partitions(topic) for topic in topics}
        return clients.admin.ends_of([place for place in begin if place[1] in numbers[place[0]]])

    ends = portion.ends
    if ends is None:
        ends = until_answered(look) if begin else {}
    return [OffsetRange(*place, at, ends[place]) for place, at in begin.items() if ends.get(place, 0) > at]


def _newly_parked(clients: Clients, spec: HandlerSpec, portion: Portion) -> Iterator[list[Record[Any]]]:
    """Copies on the error topic that come from records which are not finished yet: the newest ones.

    Batches run one after the other, so in each partition they lie behind those of finished records, and behind those
    that were made before the position that is read from. Each is read from its end backwards until one of them is seen.
    """
    topic, since = spec.error_topic_of(clients.app), portion.since

    def look() -> tuple[dict[int, int], dict[int, int]]:
        partitions = clients.admin.partitions(topic)
        return clients.admin.starts(topic, partitions), clients.admin.ends(topic, partitions)

    begins, ends = until_answered(look)
    # A run over the error topic itself has finished what lies before its offsets, and their copies with them.
    starts = {part: max(at, since.get((topic, part), (0, 0))[0]) for part, at in begins.items()}
    size, total = _CHUNK, 0
    open_ = {partition: ends[partition] for partition in ends if ends[partition] > starts[partition]}
    while open_ and total < _MOST:
        ranges = [OffsetRange(topic, part, max(starts[part], end - size), end) for part, end in open_.items()]
        total += sum(part.length for part in ranges)
        old: set[int] = set()
        for records in _read(clients, ranges):
            fresh = []
            for record in records:
                place = read_from(record)
                known = None if place is None else since.get(place[:2])
                made = parked_at(record)
                if place is None or known is None or made is None:
                    continue
                if place[2] < known[0] or made < known[1]:
                    old.add(record.partition)
                elif record.header("laneway-handler") == spec.name.encode():
                    fresh.append(record)
            yield fresh
        open_ = {part.partition: part.start for part in ranges
                 if part.start > starts[part.partition] and part.partition not in old}  # fmt: skip
        size *= 4


def _read(clients: Clients, ranges: list[OffsetRange]) -> Iterator[list[Record[Any]]]:
    if not ranges:
        return
    reader = clients.reader_of(ranges[0].topic)
    reader.open(ranges)
    try:
        while not reader.is_exhausted:
            yield reader.fetch(10_000, 0.1)
    finally:
        reader.close()
