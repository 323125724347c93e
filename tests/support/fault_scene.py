"""FaultScene: a scene of `support.fault_app`, with the names and the state of its retry topics."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from laneway.devkit.history import check, read_history
from support.doors import BrokerUnavailableError
from support.spark_scene import Scene
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from laneway.devkit.history import Event, Verdict
    from support.processes import LanewayRun

__all__ = ["FaultScene", "Place"]

Place = tuple[int, int]


class FaultScene(Scene):
    """Produces records that say how often they fail, and looks at what became of them."""

    def retry(self, step: int = 1) -> str:
        """Name of a step's retry topic."""
        return f"{self.topic}.{self.group}.retry.{step}"

    def alter(self, topic: str, **config: object) -> None:
        """Set options of a topic."""
        entries = [
            ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.client.incremental_alter_configs([resource])[resource].result()

    def option(self, topic: str, name: str) -> str:
        """An option of a topic, as the brokers tell it."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return str(self.client.describe_configs([resource])[resource].result()[name].value)

    def produce_failing(self, failures: Sequence[int], more: bytes = b"", keys: bytes = b"k") -> set[Place]:
        """Produce a record of a key of its own for each number of calls that fail; gives the places of all."""
        before = self.ends()
        self.produce_rows((b"%s%d" % (keys, number), b"%d %s" % (count, more)) for number, count in enumerate(failures))
        return {(part, offset) for part, end in self.ends().items() for offset in range(before.get(part, 0), end)}

    @property
    def gate(self) -> Path:
        """The file that gated calls wait for."""
        return self.folder / "gate"

    def begin(self, *arguments: str, **rest: Any) -> LanewayRun:
        """Start the app and wait until it consumes."""
        run = self.run(*arguments, target="support.fault_app:app", gate=self.gate, **rest)
        eventually(
            lambda: "consuming" in run.output or not run.is_running,
            timeout=120,
            every=0.02,
            why=lambda: f"the start\n{run.output}",
        )
        assert run.is_running, run.output
        return run

    def stop(self, run: LanewayRun) -> None:
        """Ask the run to stop, which it must do cleanly."""
        run.send(signal.SIGTERM)
        assert run.ended(30) == 0, run.output

    def done(self) -> list[Event]:
        """Calls that succeeded."""
        return self._events("done")

    def failed(self) -> list[Event]:
        """Calls that failed."""
        return self._events("failed")

    def delete_in_use(self, topic: str) -> None:
        """Delete a topic that has records; a run may create it again at once.

        Until the broker has seen to it, it acknowledges what comes for the topic, and that is lost without a trace.
        """
        self.admin.delete(topic)
        eventually(lambda: not any(self.ends(topic).values()), why=f"the end of {topic}")

    def waiting(self) -> list[Event]:
        """Calls that reached the gate."""
        return self._events("waiting")

    def is_finished(self, *topics: str) -> bool:
        """Whether the group has finished these topics, or the source and the first retry topic."""
        try:
            return all(self.committed(topic) == self.ends(topic) for topic in topics or (self.topic, self.retry()))
        except BrokerUnavailableError:  # a recreated topic has no leader for a moment
            return False

    def found(self) -> Verdict:
        """The checker's finding on the calls and the parked copies."""
        return check(self.done(), self.ends(), failed=self.failed(), parked=self.parked())

    def _events(self, kind: str) -> list[Event]:
        return list(read_history(self._history("") / kind))
