"""Recovery: what a partition's former owner has left on retry and error topics, looked up before it is read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from laneway._core.commands import Load
from laneway._kafka import AssignedConsumer
from laneway._runtime.former_copies import Portion, recover_copies

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from laneway._core.copy_index import CopyIndex
    from laneway._core.deferred_keys import DeferredKeys
    from laneway._kafka import Admin, Place
    from laneway._runtime.handler_worker import HandlerWorker

    _Finding = tuple[HandlerWorker, DeferredKeys, list[CopyIndex]]

__all__ = ["LookUp", "Recovery"]


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
    """Looks for copies in a thread of its own, one for each assignment, while the group goes on.

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
            partitions: those of its partitions that are ours now.
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
        """A partition is gone: what is found does not count."""
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
