"""Runs a workload on an engine and measures it."""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from laneway._kafka import Admin
from laneway._runtime.lifecycle import State
from laneway.devkit.bench._usage import Usage
from laneway.devkit.bench._workloads import KEYS, PARTITIONS, Workload, app_of, fill
from laneway.devkit.history import Recorder, Verdict, check, read_history
from laneway.errors import EngineError
from laneway.observe import BatchHandled, Event, Tally, logger
from laneway.settings import Settings, load

if TYPE_CHECKING:
    from laneway._declare.app import App

__all__ = ["Figures", "measure"]

_log = logger("bench")
_UNTIMED = 8.0  # seconds of a latency run that do not count: a broker whose code is not compiled yet is far slower
_CHECKED = 200_000  # maximum records of the checked pass
_LIMIT = 300.0  # seconds a pass may take


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a workload. Times count from the first to the last handled record of a warm query."""

    workload: str
    engine: str
    handler: str
    lanes: int
    records: int
    seconds: float
    records_per_second: float
    ideal_per_second: float | None
    ratio: float | None
    ratio_measured: float | None
    """Ratio to lanes divided by the measured mean time of a call."""
    cpu_seconds: float
    rss_mb: float
    lost: int
    duplicates: int
    inversions: int
    overlaps: int
    p50_ms: int | None
    p99_ms: int | None
    cold_start_seconds: float
    """From the call of `run` to the first handled record."""
    batches: int

    def as_dict(self) -> dict[str, Any]:
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(self).items()}


def measure(
    workload: Workload,
    brokers: str,
    *,
    engine: str = "spark",
    leave_out: set[int],
    master: str | None = None,
) -> Figures:
    """Measure a workload: a timed pass without recording, then a checked pass in which every call is recorded.

    Args:
        workload: what to run.
        brokers: bootstrap servers.
        engine: ``spark`` or ``direct``.
        leave_out: processes (the broker's) that do not count as usage.
        master: Spark master.
    """
    overrides = {"brokers": brokers, "engine": engine} | ({"spark.master": master} if master else {})
    settings = load(overrides=overrides)
    timed = _TimedPass(workload, settings, brokers, leave_out).run()
    verdict = _checked_pass(workload, settings, brokers)
    tally, seconds = timed.tally, timed.tally.last - timed.tally.first
    rate = tally.handled / seconds if seconds else 0.0
    mean = tally.seconds / tally.calls if tally.calls else 0.0
    reachable = workload.reachable(mean) if mean and workload.wait else None
    return Figures(
        workload=workload.name,
        engine=engine,
        handler=workload.handler,
        lanes=workload.lanes,
        records=tally.handled,
        seconds=seconds,
        records_per_second=rate,
        ideal_per_second=workload.ideal,
        ratio=rate / workload.ideal if workload.ideal else None,
        ratio_measured=rate / reachable if reachable else None,
        cpu_seconds=timed.usage.cpu_seconds,
        rss_mb=timed.usage.rss_mb,
        lost=workload.records - tally.handled + verdict.lost if not workload.rate else verdict.lost,
        duplicates=verdict.duplicates,
        inversions=verdict.inversions,
        overlaps=verdict.overlaps,
        p50_ms=tally.percentile(50),
        p99_ms=tally.percentile(99),
        cold_start_seconds=timed.cold_start,
        batches=timed.batches,
    )


class _TimedPass:
    """Warms up a query, pauses it while records are produced, and times how it handles them."""

    def __init__(self, workload: Workload, settings: Settings, brokers: str, leave_out: set[int]) -> None:
        self._workload = workload
        self._settings = settings
        self._brokers = brokers
        self.usage = Usage(leave_out)
        self.tally = Tally()
        self.batches = 0
        self.cold_start = 0.0
        self._topic = _new_topic(settings)
        self._warm = max(20_000, workload.records // 2) if not workload.rate else 10_000
        self._seen = 0
        self._timed_from: float | None = None
        self._changed = threading.Condition()
        self._error: BaseException | None = None

    def run(self) -> _TimedPass:
        _log.info("producing %d records to warm up with", self._warm)
        fill(self._brokers, self._topic, self._warm, keys=KEYS).wait()
        engine = _engine(self._settings, listener=self)
        conductor = threading.Thread(target=self._conduct, args=(engine,), daemon=True)
        self._began = time.time()
        conductor.start()
        app_of(self._workload, self._topic, None).run(engine)
        conductor.join()
        if self._error is not None:
            raise self._error
        return self

    def event(self, event: Event) -> None:
        """Count what a batch has done."""
        if isinstance(event, BatchHandled):
            self._batch_done(event.tally)

    def note(self, words: str) -> None: ...

    def _batch_done(self, tally: Tally) -> None:
        with self._changed:
            if tally.first and not self.cold_start:  # a tally before the first call has no start
                self.cold_start = tally.first - self._began
            self._seen += tally.finished
            if self._timed_from is not None and tally.first >= self._timed_from:
                self.tally.add(tally)
                self.batches += 1
            self._changed.notify_all()

    def _conduct(self, engine: Any) -> None:
        try:
            self._wait_until(self._warm)
            if self._workload.rate:
                self._latency_run()
            else:
                self._throughput_run(engine)
        except BaseException as error:  # noqa: BLE001 - raised on the main thread
            self._error = error
        finally:
            engine.stop()

    def _throughput_run(self, engine: Any) -> None:
        engine.pause()
        engine.life.wait_for(State.PAUSED, 10)
        _log.info("warm; producing %d records", self._workload.records)
        fill(self._brokers, self._topic, self._workload.records, keys=KEYS, is_skewed=self._workload.is_skewed).wait()
        time.sleep(1)  # let the broker finish its work for the producer
        _log.info("running")
        self._timed_from = time.time()
        with self.usage:
            engine.resume()
            self._wait_until(self._warm + self._workload.records)

    def _latency_run(self) -> None:
        rate = self._workload.rate or 1
        _log.info("warm; producing %d records/s for %.0f s", rate, self._workload.records / rate)
        producing = fill(self._brokers, self._topic, self._workload.records, keys=KEYS, rate=rate)
        self._timed_from = time.time() + _UNTIMED
        time.sleep(_UNTIMED)
        with self.usage:
            producing.wait()
            self._wait_until(self._warm + self._workload.records)

    def _wait_until(self, count: int) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._seen >= count, _LIMIT):
                raise EngineError(f"only {self._seen:,} of {count:,} records were handled in {_LIMIT:.0f} s")


def _checked_pass(workload: Workload, settings: Settings, brokers: str) -> Verdict:
    """Record every call, with fewer records; not timed."""
    topic = _new_topic(settings)
    count = min(workload.records, _CHECKED)
    _log.info("checking order and loss over %d records, with every call recorded", count)
    fill(brokers, topic, count, keys=KEYS, is_skewed=workload.is_skewed).wait()
    with tempfile.TemporaryDirectory(prefix="laneway-bench-") as folder:
        app: App = app_of(workload, topic, Recorder(folder))
        app.run(_engine(settings, once=True))
        ends = Admin(settings.cluster().client_options()).ends(topic, list(range(PARTITIONS)))
        return check(read_history(folder), ends)


def _new_topic(settings: Settings) -> str:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    Admin(settings.cluster().client_options()).create(topic, PARTITIONS)
    return topic


def _engine(settings: Settings, **options: Any) -> Any:
    if settings.engine == "direct":
        from laneway._engines.direct import DirectEngine

        return DirectEngine(settings, **options)
    from laneway._engines.spark import SparkEngine

    return SparkEngine(settings, **options)
