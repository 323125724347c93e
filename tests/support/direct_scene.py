"""DirectScene: one topic, one group, and worker processes of the direct engine that come and go."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from laneway.devkit.history import check, read_history
from support.direct_commits import Clock, logged_commits
from support.ownership import Allowance, check_ownership, read_ownership
from support.spark_scene import Scene
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laneway.devkit.history import Event, Verdict
    from support.ownership import Ownership, OwnershipVerdict
    from support.processes import LanewayRun

__all__ = ["QUICK", "DirectScene", "Place", "Traffic"]

Place = tuple[int, int]
"""Partition and offset."""

QUICK = {
    "LANEWAY__CLUSTERS__MAIN__CONSUMER__SESSION_TIMEOUT": "6s",
    "LANEWAY__CLUSTERS__MAIN__CONSUMER__HEARTBEAT_INTERVAL": "1s",
}
"""A worker that is dead or frozen is missed as soon as a broker allows."""


class DirectScene(Scene):
    """As `Scene`, with workers of the direct engine. Each has a history of its own."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.workers: list[LanewayRun] = []
        self._traffic: list[Traffic] = []
        self._clock = Clock()

    @property
    def options(self) -> dict[str, Any]:
        """Of clients of the test's own."""
        return {"bootstrap.servers": self.bootstrap}

    def worker(self, *arguments: str, **rest: Any) -> LanewayRun:
        """Start one more worker, with further flags."""
        name = f"-{len(self.workers)}"
        for kind in ("begun", "done", "failed"):
            (self._history(name) / kind).mkdir(parents=True)
        target = rest.pop("target", "support.direct_app:app")
        made = self.run("--engine", "direct", *arguments, target=target, life=name, **{**QUICK, **rest})
        self.workers.append(made)
        return made

    def dismiss(self, worker: LanewayRun, timeout: float = 60.0) -> None:
        """Stop a worker as a service manager would; it must end cleanly."""
        worker.send(signal.SIGTERM)
        code = worker.ended(timeout)
        assert code == 0, worker.output

    def dismiss_all(self) -> None:
        """Stop those that are there."""
        present = [worker for worker in self.workers if worker.is_running]
        for worker in present:
            worker.send(signal.SIGTERM)
        for worker in present:
            code = worker.ended(60)
            assert code == 0, worker.output

    def events(self, kind: str = "") -> list[Event]:
        """What all workers wrote to their histories of a kind: ended calls by default, or ``begun``."""
        return [event for number in range(len(self.workers)) for event in self.events_of(number, kind)]

    def events_of(self, number: int, kind: str = "") -> list[Event]:
        """What one worker wrote."""
        return list(read_history(self._history(f"-{number}") / kind))

    def told_by(self, number: int) -> list[Ownership]:
        """What one worker reported of its partitions."""
        return list(read_ownership(self._history(f"-{number}"), f"worker {number}"))

    def judged(self) -> Verdict:
        """The checker's finding over all workers, with everything in the topic expected."""
        return check(self.events(), self.ends())

    def judged_ownership(self) -> OwnershipVerdict:
        """The workers' reports of their partitions, checked against their calls and the broker's log of commits."""
        told = [event for number in range(len(self.workers)) for event in self.told_by(number)]
        calls = {f"worker {number}": self.events_of(number) for number in range(len(self.workers))}
        ours = [event for event in told if event.topic == self.topic]
        self._clock.look()
        logged = logged_commits(self, self._clock, self.folder / "commits.jsonl")
        # The engine reports an assignment from another thread than the one that begins to call.
        allowance = Allowance(self._clock.doubt, late=5.0, grace=5.0)
        return check_ownership(ours, calls, self.ends(), logged=logged, allowance=allowance)

    def begun_twice(self) -> set[Place]:
        """Records whose handler was called more than once, whether or not the call came to its end."""
        counts = Counter((event.partition, event.offset) for event in self.events("begun"))
        return {place for place, count in counts.items() if count > 1}

    def wait_for(self, condition: Callable[[], object], *, timeout: float = 60.0, why: str = "") -> None:
        """Wait for something that the workers do."""
        eventually(condition, timeout=timeout, why=lambda: "\n".join([why, *(run.output for run in self.workers)]))

    def wait_for_calls(self, count: int, **rest: Any) -> None:
        """Wait until so many calls have ended."""
        self.wait_for(lambda: len(self.events()) >= count, why=f"{count} calls", **rest)

    def wait_until_idle(self, topics: tuple[str, ...] = (), **rest: Any) -> None:
        """Wait until the group has committed everything there is."""
        names = topics or (self.topic,)
        self.wait_for(lambda: all(self.committed(name) == self.ends(name) for name in names), why="no lag", **rest)

    def traffic(self, rate: float, *, keys: int = 60, burst: int = 1, most: int = 1_000_000) -> Traffic:
        """Records that keep coming."""
        made = Traffic(self, rate=rate, keys=keys, burst=burst, most=most)
        self._traffic.append(made)
        return made

    def quiet(self) -> int:
        """Produce nothing more; gives how many records there were."""
        return sum(traffic.stop() for traffic in self._traffic)

    def close(self) -> None:
        """End what runs."""
        for traffic in self._traffic:
            traffic.stop()
        for worker in self.workers:
            if worker.is_running:
                worker.send(signal.SIGCONT)  # one that is frozen stays in the way of its end
        super().close()


class Traffic:
    """Produces records of a number of keys at a rate, on a thread of its own.

    Args:
        scene: whose topic.
        rate: records a second.
        keys: how many keys take turns.
        burst: records that come together.
        most: records after which it ends by itself.
    """

    def __init__(self, scene: DirectScene, *, rate: float, keys: int, burst: int, most: int) -> None:
        self._scene = scene
        self._rows = self._numbered(keys)
        self._rate, self._burst, self._most = rate, burst, most
        self.count = 0
        """Records produced so far."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether it has produced all that it may."""
        return not self._thread.is_alive()

    def stop(self) -> int:
        """Produce nothing more; gives how many there were."""
        self._is_over.set()
        self._thread.join(60)
        return self.count

    def _work(self) -> None:
        next_ = time.monotonic()
        while self.count < self._most and not self._is_over.wait(max(0.0, next_ - time.monotonic())):
            size = min(self._burst, self._most - self.count)
            self._scene.produce_rows([next(self._rows) for _ in range(size)])
            self.count += size
            next_ += size / self._rate

    @staticmethod
    def _numbered(keys: int) -> Iterator[tuple[bytes, bytes]]:
        number = 0
        while True:
            yield f"k{number % keys}".encode(), str(number).encode()
            number += 1
