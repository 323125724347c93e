"""Judge: everything that was written down, put together and held against the bar."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laneway._declare.handler import error_topic_name
from laneway.devkit.history import check, read_history
from soak.offsets import everything, logged_commits
from support.ownership import Allowance, check_ownership, read_ownership

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from laneway.devkit.history import Event
    from soak.crew import Crew
    from soak.faults import Chaos
    from soak.load import Load
    from soak.offsets import Clock
    from soak.stage import Stage
    from support.ownership import LoggedCommit, Ownership, OwnershipVerdict

__all__ = ["Bar", "Findings", "judge"]

_EXAMPLES = 5
_LATE = 5.0  # seconds: events wait in the engine until its main thread has time, on a machine that has none
_GRACE = 1.0  # seconds: lanes hear of a loss a little later than the thread that reads
_COPIED = ("origin-partition", "origin-offset", "parked-at")

_Place = tuple[int, int]
"""Partition and offset."""
_Call = tuple[str, "Event"]
"""Which process, and what it called."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What a soak of a given length has to reach: 500,000 records and 80 faults in twenty minutes, and no violation."""

    seconds: float
    fault_every: float
    duplicates: float
    """Percent that repeats have to stay below."""

    @property
    def records(self) -> int:
        """The least number of records."""
        return int(500_000 * self.seconds / 1200)

    @property
    def faults(self) -> int:
        """The least number of faults."""
        return int(self.seconds / self.fault_every)

    def missed(self, figures: dict[str, Any]) -> list[str]:
        """What falls short, in words."""
        least = {"records": self.records, "faults": self.faults}
        found = [f"{name}: {figures[name]} of {value}" for name, value in least.items() if figures[name] < value]
        found += [f"{name}: {figures[name]}" for name in _NONE if figures[name]]
        if figures["duplicate_percent"] >= self.duplicates:
            found.append(f"duplicate_percent: {figures['duplicate_percent']}")
        return found


_NONE = (
    "lost",
    "unacknowledged",
    "inversions",
    "overlaps_within",
    "overlaps_handed_over",
    "commit_ahead",
    "commit_after_revoke",
    "commit_backwards",
    "commit_unwritten",
    "strays",
    "untold",
    "lag_at_end",
    "surprises",
    "hung",
    "produce_failures",
    "fault_failures",
)
"""What there must be nothing of.

Not among them is what cannot be prevented: calls (`overlaps_between_frozen`, `overlaps_between_others`) and commits
(`commit_rewinds`) of a process that was frozen or cut off, and could not know that its partition was another's by then.
"""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a soak left behind."""

    stage: Stage
    load: Load
    crew: Crew
    chaos: Chaos
    clock: Clock
    folder: Path
    """Of the workers' histories."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was written down, by workers and brokers."""

    ends: dict[int, int]
    calls: dict[str, list[Event]]
    failed: dict[str, list[Event]]
    told: list[Ownership]
    parked: list[tuple[_Place, float]]
    """Where the copies on the error topic came from, and when they were made."""
    logged: list[LoggedCommit]


def judge(findings: Findings) -> dict[str, Any]:
    """All figures of a soak."""
    evidence = _gather(findings)
    owned = check_ownership(
        evidence.told,
        evidence.calls,
        evidence.ends,
        # The first of several copies counts, as the first of several calls does.
        parked=dict(sorted(evidence.parked, key=lambda copy: copy[1], reverse=True)),
        logged=evidence.logged,
        allowance=Allowance(findings.clock.doubt, _LATE, _GRACE),
    )
    between = _between(evidence, findings.chaos.frozen)
    crew, load, chaos = findings.crew, findings.load, findings.chaos
    told = (owned.examples, between["examples"], crew.surprises, load.failed, chaos.failures)
    return {
        **_of_records(findings, evidence),
        "overlaps_handed_over": between["handed over"],
        "overlaps_between_frozen": between["frozen"],
        "overlaps_between_others": between["others"],
        **_of_commits(evidence, owned),
        **_of_workers(crew),
        "faults": chaos.total,
        "faults_by_kind": dict(sorted(chaos.counts.items())),
        "fault_failures": len(chaos.failures),
        "produce_failures": len(load.failed),
        "examples": [text for texts in told for text in (texts if texts is owned.examples else texts[:_EXAMPLES])],
    }


def _gather(findings: Findings) -> Evidence:
    stage = findings.stage
    calls, failed, told = {}, {}, []
    for folder in sorted(path for path in findings.folder.iterdir() if path.is_dir()):
        calls[folder.name] = list(read_history(folder))
        failed[folder.name] = list(read_history(folder / "failed"))
        told += [event for event in read_ownership(folder, folder.name) if event.topic == stage.topic]
    logged = logged_commits(stage, findings.clock, findings.folder.with_name("commits.jsonl"))
    return Evidence(stage.ends(), calls, failed, told, _parked(stage, findings.clock), logged)


def _of_records(findings: Findings, evidence: Evidence) -> dict[str, Any]:
    ends, acknowledged = evidence.ends, findings.load.acknowledged
    calls = [call for made in evidence.calls.values() for call in made]
    failed = [call for made in evidence.failed.values() for call in made]
    verdict = check(calls, ends, failed=failed, parked=[place for place, _ in evidence.parked])
    records = sum(ends.values())
    return {
        "records": records,
        "unacknowledged": sum(abs(end - acknowledged.get(partition, 0)) for partition, end in ends.items()),
        "calls": verdict.calls,
        "failed_calls": len(failed),
        "parked": len(evidence.parked),
        "most_at_once": verdict.most_at_once,
        "lost": verdict.lost,
        "duplicates": verdict.duplicates,
        "duplicate_percent": round(100 * verdict.duplicates / max(1, records), 2),
        "inversions": verdict.inversions,
        "overlaps_within": sum(
            check(made, failed=evidence.failed[name]).overlaps for name, made in evidence.calls.items()
        ),
    }


def _of_commits(evidence: Evidence, owned: OwnershipVerdict) -> dict[str, Any]:
    kinds = Counter(event.kind for event in evidence.told)
    last = {commit.partition: commit.offset for commit in evidence.logged}
    # A process that calls handlers and never reports its partitions would pass every check of ownership.
    silent = {name for name, made in evidence.calls.items() if made} - {event.process for event in evidence.told}
    return {
        "assignments": kinds["assigned"],
        "revocations": kinds["revoked"],
        "losses": kinds["lost"],
        "commits_told": kinds["committed"],
        "commits_logged": len(evidence.logged),
        "commit_ahead": owned.ahead,
        "commit_after_revoke": owned.after_revoke,
        "commit_backwards": owned.backwards,
        "commit_unwritten": owned.unwritten,
        "commit_rewinds": owned.rewinds,
        "strays": owned.strays,
        "untold": len(silent),
        "lag_at_end": sum(end - last.get(partition, 0) for partition, end in evidence.ends.items()),
    }


def _of_workers(crew: Crew) -> dict[str, Any]:
    codes = Counter(code for _, code, _ in crew.exits)
    return {
        "workers": len(crew.workers),
        "surprises": len(crew.surprises),
        "hung": codes[None],
        "exit_codes": {str(code): count for code, count in codes.items()},
        "longest_leave_seconds": max((seconds for _, _, seconds in crew.exits), default=0.0),
    }


def _parked(stage: Stage, clock: Clock) -> list[tuple[_Place, float]]:
    """Where each copy on the error topic came from, with repeats, and when it was made.

    When it was written there is not recorded; a little later. So a commit that went out before the copy was made is
    found, and one that only did not wait for the broker's answer is not.
    """
    topic = error_topic_name(stage.topic, stage.group)
    if not stage.admin.partitions(topic):
        return []
    return [_copy(headers, clock) for _, _, _, headers in everything(stage, topic)]


def _copy(headers: dict[str, bytes], clock: Clock) -> tuple[_Place, float]:
    partition, offset, made = (int(headers[f"laneway-{name}"]) for name in _COPIED)
    return (partition, offset), clock.moment(made) - clock.doubt


def _between(evidence: Evidence, frozen: list[tuple[str, float, float]]) -> dict[str, Any]:
    """Pairs of calls of one key that ran at once in two processes: one of them frozen, handed over too soon, or others.

    A process that is frozen, or cut off, in the middle of a call cannot know that its partition is another's by now.
    One that gives a partition back waits for its calls first.
    """
    lines: dict[int, list[_Call]] = {}
    for made in (evidence.calls, evidence.failed):
        for name, calls in made.items():
            for call in calls:
                if call.key:
                    lines.setdefault(call.key, []).append((name, call))
    given_back = [(event.process, event.partition, event.time) for event in evidence.told if event.kind == "revoked"]
    found: dict[str, Any] = {"frozen": 0, "handed over": 0, "others": 0, "examples": []}
    for pair in [pair for line in lines.values() for pair in _pairs(line)]:
        kind = _kind(*pair, frozen, given_back)
        found[kind] += 1
        if kind != "frozen":
            found["examples"].append(_overlap(kind, *pair))
    return found


def _pairs(line: list[_Call]) -> Iterator[tuple[_Call, _Call]]:
    """The calls of one key that ran at once in two processes."""
    running: list[_Call] = []
    for name, call in sorted(line, key=lambda entry: (entry[1].start, entry[1].end)):
        running = [entry for entry in running if entry[1].end > call.start]
        yield from ((entry, (name, call)) for entry in running if entry[0] != name)
        running.append((name, call))


def _kind(
    first: _Call, second: _Call, frozen: list[tuple[str, float, float]], given_back: list[tuple[str, int, float]]
) -> str:
    """Why two calls ran at once: the first was frozen, or the second had not heard the news yet after it had been."""
    for (name, call), until in ((first, first[1].end), (second, second[1].start)):
        if any(worker == name and begin < until and call.start < end + _GRACE for worker, begin, end in frozen):
            return "frozen"
    for name, call in (first, second):
        owner = (name, call.partition)
        if any(owner == (process, part) and call.start < at < call.end for process, part, at in given_back):
            return "handed over"
    return "others"


def _overlap(kind: str, *pair: _Call) -> str:
    told = [f"{name} {call.partition}@{call.offset} {call.start:.3f}-{call.end:.3f}" for name, call in pair]
    return f"overlap, {kind}: {told[0]} and {told[1]}"
