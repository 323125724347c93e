"""DirectFaultScene: as `FaultScene`, with runs of the direct engine, whose worker is the process itself."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import psutil
from confluent_kafka import KafkaException

from laneway import App, DirectEngine, Topic
from laneway.events import StateChanged
from laneway.settings import load
from support.doors import State
from support.fault_scene import FaultScene
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import ConsumerGroupType

    from support.doors import RunReport
    from support.processes import LanewayRun

__all__ = ["DirectFaultScene", "EngineThread", "cpu_share", "told"]


class DirectFaultScene(FaultScene):
    """Runs ``laneway run --engine direct``; everything else is as on Spark."""

    def run(self, *arguments: str, **rest: Any) -> LanewayRun:
        """Start `laneway run`, or another command, with the direct engine."""
        return super().run("--engine", "direct", *arguments, **rest)

    def begin(self, *arguments: str, **rest: Any) -> LanewayRun:
        """Start `support.fault_app` and wait until it consumes."""
        return super().begin(*arguments, **rest)

    def consume(self, *arguments: str, **rest: Any) -> LanewayRun:
        """Start `support.spark_apps` and wait until it consumes."""
        run = self.run(*arguments, **rest)
        self.until(lambda: "consuming" in run.output)
        return run

    def members(self) -> list[Any]:
        """The members of the group, as the brokers describe them."""
        try:
            return list(self._described().members)
        except KafkaException:  # a coordinator that loads or moves
            return []

    def protocol(self) -> tuple[ConsumerGroupType, str]:
        """The type of the group and the name of what shares its partitions out, as the brokers describe it."""
        found = self._described()
        return found.type, found.partition_assignor

    def is_gone(self, topic: str) -> bool:
        """Whether a deleted topic is really away."""
        return not self.admin.partitions(topic)

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is away."""
        self.admin.delete(topic)
        eventually(lambda: self.is_gone(topic), why=f"the end of {topic}")

    def is_read(self) -> bool:
        """Whether the group has finished everything in the source."""
        return self.is_finished(self.topic)

    def _described(self) -> Any:
        return self.client.describe_consumer_groups([self.group], request_timeout=10)[self.group].result()


class EngineThread:
    """A direct engine on a thread of this process, for what only the library shows.

    Args:
        scene: names topic and group.
        call: what the handler does; its name is ``handle``.
        declare: makes it a handler of an app on a topic, one record at a call by default.
        details: given what the engine says beside its states.
        overrides: settings by dotted key.
    """

    def __init__(
        self,
        scene: DirectFaultScene,
        call: Callable[[Any], None],
        declare: Callable[[App, Topic[bytes]], Any] = lambda app, topic: app.handler(topic, lanes=4),
        details: Callable[[str], object] = lambda text: None,
        **overrides: object,
    ) -> None:
        app = App(scene.group)

        def handle(given: Any) -> None:
            call(given)

        declare(app, Topic(scene.topic))(handle)
        self.states: list[State] = []
        settings = load(overrides={"brokers": scene.bootstrap, **overrides})

        @app.on(StateChanged)
        def state_changed(event: StateChanged) -> None:
            self.states.append(State(event.state))
            details(event.detail)

        self.engine = DirectEngine(settings)
        self.failure: BaseException | None = None
        self.report: RunReport | None = None
        self._thread = threading.Thread(target=self._run, args=(app,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop it, which must work cleanly."""
        self.engine.stop()
        self.ended()

    def ended(self) -> RunReport:
        """Wait for its end, which must be clean; what it did."""
        self._thread.join(40)
        assert not self._thread.is_alive()
        assert self.failure is None
        assert self.report is not None
        return self.report

    def told(self) -> str:
        """What is known of it, for the message of a failure."""
        return f"{self.failure!r}, {self.engine.life.detail!r} after {[state.value for state in self.states]}"

    def _run(self, app: App) -> None:
        try:
            self.report = self.engine.run(app)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.failure = error


def cpu_share(run: LanewayRun, seconds: float) -> float:
    """What part of a core the process uses over some seconds."""
    process = psutil.Process(run.process.pid)
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, passed = process.cpu_times(), time.monotonic() - began
    return (after.user + after.system - before.user - before.system) / passed


def told(run: LanewayRun) -> str:
    """The one line that says why a run ended; there is no traceback beside it."""
    said = [line for line in run.output.splitlines() if line.startswith("laneway: ")]
    lines = [line for line in said if not line.startswith("laneway: created topic ")]
    assert len(lines) == 1, run.output
    assert "Traceback" not in run.output
    return lines[0]
