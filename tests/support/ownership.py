"""Who owned a partition when, and what was committed: a recorder, and a checker of commits and fencing."""

from __future__ import annotations

import json
import math
import os
import time
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from laneway.devkit.history import append

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from laneway.devkit.history import Event, Position

__all__ = [
    "Allowance",
    "LoggedCommit",
    "Ownership",
    "OwnershipRecorder",
    "OwnershipVerdict",
    "check_ownership",
    "read_ownership",
]

Kind = Literal["assigned", "revoked", "lost", "committed"]
Finding = Literal["ahead", "after_revoke", "backwards", "unwritten", "rewinds", "strays"]

_EXAMPLES = 5
_LAST = chr(0x10FFFF)  # behind every name


class Ownership(NamedTuple):
    """One partition was assigned to a process, taken from it, or committed by it. Times are CLOCK_MONOTONIC."""

    process: str
    kind: Kind
    topic: str
    partition: int
    time: float
    offset: int = -1
    """The committed one: of the next record to read."""


class LoggedCommit(NamedTuple):
    """A commit as the broker's own log of offsets has it, with the time at which the broker took it."""

    partition: int
    offset: int
    time: float


@dataclass(frozen=True, slots=True)
class OwnershipRecorder:
    """Writes down what an engine reports of its partitions, one file per process, each event in one write.

    Its methods take what `laneway.events` has in the events of the same names; an engine reports them in the process
    that runs the app.
    """

    folder: str

    def assigned(self, topic: str, partitions: Sequence[int]) -> None:
        """Take note of partitions that this process may read and commit from now on."""
        self._write("assigned", topic, [(partition, -1) for partition in partitions])

    def revoked(self, topic: str, partitions: Sequence[int], *, is_lost: bool) -> None:
        """Take note of partitions that this process gave back, or that were taken from it."""
        self._write("lost" if is_lost else "revoked", topic, [(partition, -1) for partition in partitions])

    def committed(self, topic: str, offsets: Sequence[tuple[int, int]]) -> None:
        """Take note of commits, partition and offset, that the broker acknowledged."""
        self._write("committed", topic, list(offsets))

    def _write(self, kind: Kind, topic: str, places: Sequence[tuple[int, int]]) -> None:
        line = json.dumps({"time": time.monotonic(), "kind": kind, "topic": topic, "places": places})
        append(Path(self.folder) / f"{os.getpid()}.ownership", line.encode() + b"\n")


def read_ownership(folder: str | Path, process: str = "") -> Iterator[Ownership]:
    """Every event of a folder, those of a process in their order; a line cut short by a kill is left out.

    Args:
        folder: what the recorder was given.
        process: what to call the process; its number by default, which a system uses again sooner or later.
    """
    for path in sorted(Path(folder).glob("*.ownership")):
        whole = path.read_bytes().rpartition(b"\n")[0]
        for line in whole.splitlines():
            told = json.loads(line)
            for partition, offset in told["places"]:
                yield Ownership(process or path.stem, told["kind"], told["topic"], partition, told["time"], offset)


@dataclass(frozen=True, slots=True)
class Allowance:
    """Seconds that the times of a history may be off without anybody being accused."""

    doubt: float = 0.0
    """By which the times in the broker's log may be wrong."""
    late: float = 0.0
    """By which an engine may report an assignment after it has begun to call."""
    grace: float = 0.0
    """For which calls may still begin after a reported loss. What is lost has been another's for a while already; what
    is given back must be left alone at once."""


_NONE = Allowance()


@dataclass(slots=True)
class OwnershipVerdict:
    """What the checker found."""

    commits: int = 0
    """Offsets that processes committed, and those in the broker's log."""
    ahead: int = 0
    """Commits past a record that had not finished, or past the end of the topic."""
    after_revoke: int = 0
    """Commits of a process that did not own the partition, or when it had been given to another."""
    backwards: int = 0
    """Commits below an earlier one of the same ownership, in the broker's log if there is one."""
    unwritten: int = 0
    """Commits that a process was sure of and the broker's log does not have."""
    rewinds: int = 0
    """Commits in the broker's log below the one before, of another ownership: a late word of a former owner."""
    strays: int = 0
    """Calls that a process began when it did not own the partition."""
    examples: list[str] = field(default_factory=list)
    """The first few of each kind in words."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.examples


def check_ownership(
    events: Iterable[Ownership],
    calls: Mapping[str, Iterable[Event]],
    expected: Mapping[int, int],
    *,
    parked: Mapping[Position, float] | None = None,
    logged: Iterable[LoggedCommit] | None = None,
    allowance: Allowance = _NONE,
) -> OwnershipVerdict:
    """Check what processes did with the partitions of one topic.

    A commit of offset N is *ahead* when a record below N had neither a finished call nor a parked copy at that moment.
    A handler writes down its call before the engine can know of it, so an engine that waits for its handlers is never
    ahead.

    A process owns a partition from the moment it reported the assignment until it reported the revocation or the loss:
    what it commits while it still gives a partition back is its right. A commit is *after revoke* when it is reported
    outside of that, or when another process had reported an assignment in between. A process that was frozen between
    the broker's answer and its own report is innocent; only the broker's log can show that, so give it if processes
    are frozen.

    Args:
        events: what processes reported, those of one process in their order.
        calls: the calls that succeeded, by process as in *events*.
        expected: how many records each partition has, counted from offset 0.
        parked: when a copy of a record was safe on the error topic; 0.0 when that is not known.
        logged: the broker's own log of this group's commits, in its order.
        allowance: how exact the times are; exact by default.
    """
    told = list(events)
    known = {process: list(made) for process, made in calls.items()}
    log = None if logged is None else list(logged)
    checker = _Checker(_finish_times(known, expected, parked or {}), log, allowance.doubt)
    checker.follow(told)
    checker.follow_log()
    checker.follow_calls(told, known, allowance)
    return checker.verdict


def _finish_times(
    calls: Mapping[str, Sequence[Event]], expected: Mapping[int, int], parked: Mapping[Position, float]
) -> dict[int, array[float]]:
    """For each partition and offset N: when all records below N had finished."""
    times = {partition: array("d", [math.inf]) * count for partition, count in expected.items()}
    ends = [((call.partition, call.offset), call.end) for made in calls.values() for call in made]
    for (partition, offset), end in [*ends, *parked.items()]:
        line = times.get(partition)
        if line is not None and offset < len(line):
            line[offset] = min(line[offset], end)
    finished = {}
    for partition, line in times.items():
        latest = -math.inf
        finished[partition] = array("d", [latest])
        for end in line:
            latest = max(latest, end)
            finished[partition].append(latest)
    return finished


class _Checker:
    """Goes through the events once, with what each process knew at each of them."""

    def __init__(self, finished: Mapping[int, array[float]], log: list[LoggedCommit] | None, doubt: float) -> None:
        self.verdict = OwnershipVerdict()
        self._finished = finished
        self._log = log
        self._doubt = doubt
        self._assigned: dict[int, list[tuple[float, str]]] = {}
        self._written: dict[tuple[int, int], list[float]] = {}
        for commit in log or ():
            self._written.setdefault((commit.partition, commit.offset), []).append(commit.time)

    def follow(self, events: Sequence[Ownership]) -> None:
        """Check commits against what their process owned."""
        assigned = self._assigned
        for event in events:
            if event.kind == "assigned":
                assigned.setdefault(event.partition, []).append((event.time, event.process))
        for line in assigned.values():
            line.sort()
        owned: dict[tuple[str, int], tuple[float, int]] = {}  # since when, and the highest commit since
        for event in events:
            name = (event.process, event.partition)
            if event.kind == "assigned":
                owned[name] = (event.time, -1)
            elif event.kind != "committed":
                owned.pop(name, None)
            else:
                self._check_commit(event, owned.get(name), assigned.get(event.partition, []))
                if name in owned:
                    since, highest = owned[name]
                    owned[name] = (since, max(highest, event.offset))

    def _check_commit(
        self, event: Ownership, ownership: tuple[float, int] | None, assigned: list[tuple[float, str]]
    ) -> None:
        self.verdict.commits += 1
        self._check_ahead(f"{event.process} committed", event.partition, event.offset, event.time)
        written = self._written.get((event.partition, event.offset), [])
        if self._log is not None and not any(moment <= event.time + self._doubt for moment in written):
            self._accuse("unwritten", event, "which the broker's log does not have")
        if ownership is None:
            self._accuse("after_revoke", event, "which it did not own")
            return
        since, highest = ownership
        # A process may hear of its commits in another order than the broker took them: the log knows better.
        if event.offset < highest and self._log is None:
            self._accuse("backwards", event, f"after {highest}")
        taken = next((line for line in assigned if since < line[0] <= event.time), None)
        if taken and not any(since - self._doubt <= moment <= taken[0] + self._doubt for moment in written):
            self._accuse("after_revoke", event, f"which {taken[1]} was given at {taken[0]:.3f}")

    def follow_log(self) -> None:
        """Check the broker's own log: it has every commit of every member."""
        last: dict[int, LoggedCommit] = {}
        for commit in self._log or ():
            self.verdict.commits += 1
            self._check_ahead("the log has", commit.partition, commit.offset, commit.time + self._doubt)
            before = last.get(commit.partition, commit)
            if commit.offset < before.offset:
                starts = self._assigned.get(commit.partition, [])
                begun = bisect_right(starts, (commit.time, _LAST))
                is_one = begun > 0 and before.time >= starts[begun - 1][0]
                what = f"partition {commit.partition} from {before.offset} to {commit.offset}"
                self._found("backwards" if is_one else "rewinds", f"{what} at {commit.time:.3f}")
            last[commit.partition] = commit

    def follow_calls(
        self, events: Sequence[Ownership], calls: Mapping[str, Sequence[Event]], allowance: Allowance
    ) -> None:
        """Check that processes call only what they own. One that reported nothing at all cannot be judged."""
        late, grace = allowance.late, allowance.grace
        turns: dict[tuple[str, int], list[tuple[float, Kind]]] = {}
        latest: dict[str, float] = {}
        for event in events:
            latest[event.process] = max(event.time, latest.get(event.process, event.time))
            if event.kind != "committed":
                turns.setdefault((event.process, event.partition), []).append((event.time, event.kind))
        for process in latest.keys() & calls.keys():
            for call in calls[process]:
                line = turns.get((process, call.partition), [])
                place = bisect_right(line, (call.start, _LAST))
                moment, state = line[place - 1] if place else (-math.inf, "lost")
                is_ours = state == "assigned" or (state == "lost" and call.start <= moment + grace)
                after, following = line[place] if place < len(line) else (math.inf, "lost")
                is_told_later = following == "assigned" and after <= call.start + late
                # What a process had no time left to tell is not held against it.
                if not is_ours and not is_told_later and latest[process] >= call.start + late:
                    what = f"{process} called {call.partition}@{call.offset}"
                    self._found("strays", f"{what} at {call.start:.3f}, which it did not own")

    def _check_ahead(self, who: str, partition: int, offset: int, moment: float) -> None:
        times = self._finished.get(partition, array("d", [-math.inf]))
        if offset < len(times) and times[offset] <= moment:
            return
        lowest = bisect_right(times, moment) - 1
        self._found("ahead", f"{who} {partition}@{offset} at {moment:.3f} while {lowest} had not finished")

    def _accuse(self, kind: Finding, event: Ownership, why: str) -> None:
        what = f"{event.process} committed {event.partition}@{event.offset}"
        self._found(kind, f"{what} at {event.time:.3f}, {why}")

    def _found(self, kind: Finding, text: str) -> None:
        count = getattr(self.verdict, kind)
        setattr(self.verdict, kind, count + 1)
        if count < _EXAMPLES:
            self.verdict.examples.append(f"{kind}: {text}")
