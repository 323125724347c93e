"""Judge: everything that was written down, put together and held against the bar."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laneway.history import Allowance, check, check_ownership, read_history, read_ownership
from laneway.retry import error_topic_name
from soak.offsets import everything, logged_commits

if TYPE_CHECKING:
    from pathlib import Path

    from laneway.history import Event, LoggedCommit, Ownership, OwnershipVerdict
    from soak.crew import Crew
    from soak.faults import Chaos
    from soak.load import Load
    from soak.offsets import Clock
    from soak.stage import Stage

__all__ = ["Bar", "Findings", "judge"]

_EXAMPLES = 5
_LATE = 5.0  # seconds: events wait in the engine until its main thread has time, on a machine that has none
_GRACE = 1.0  # seconds: lanes hear of a loss a little later than the thread that reads


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
"""What there must be nothing of."""


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
    parked: list[tuple[int, int]]
    logged: list[LoggedCommit]


def judge(findings: Findings) -> dict[str, Any]:
    """All figures of a soak."""
    evidence = _gather(findings)
    owned = check_ownership(
        evidence.told,
        evidence.calls,
        evidence.ends,
        parked=dict.fromkeys(evidence.parked, 0.0),
        logged=evidence.logged,
        allowance=Allowance(findings.clock.doubt, _LATE, _GRACE),
    )
    between = _between(evidence.calls, findings.chaos.frozen)
    crew, load, chaos = findings.crew, findings.load, findings.chaos
    told = (owned.examples, between["examples"], crew.surprises, load.failed, chaos.failures)
    return {
        **_of_records(findings, evidence),
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
    return Evidence(stage.ends(), calls, failed, told, _parked(stage), logged)


def _of_records(findings: Findings, evidence: Evidence) -> dict[str, Any]:
    ends, acknowledged = evidence.ends, findings.load.acknowledged
    calls = [call for made in evidence.calls.values() for call in made]
    failed = [call for made in evidence.failed.values() for call in made]
    verdict = check(calls, ends, failed=failed, parked=evidence.parked)
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
    # A process that calls handlers and never tells of its partitions would pass every check of ownership.
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


def _parked(stage: Stage) -> list[tuple[int, int]]:
    """Partition and offset of each copy on the error topic, with repeats."""
    topic = error_topic_name(stage.topic, stage.group)
    if not stage.admin.partitions(topic):
        return []
    headers = [found for _, _, _, found in everything(stage, topic)]
    return [(int(each["laneway-origin-partition"]), int(each["laneway-origin-offset"])) for each in headers]


def _between(calls: dict[str, list[Event]], frozen: list[tuple[str, float, float]]) -> dict[str, Any]:
    """Calls of one key that ran at once in two processes, one of them frozen meanwhile or neither.

    A process that is frozen, or cut off, in the middle of a call cannot know that its partition is another's by now.
    """
    lines: dict[int, list[tuple[float, float, str, Event]]] = {}
    for name, made in calls.items():
        for call in made:
            if call.key:
                lines.setdefault(call.key, []).append((call.start, call.end, name, call))
    found: dict[str, Any] = {"frozen": 0, "others": 0, "examples": []}
    for line in lines.values():
        line.sort(key=lambda entry: entry[:2])
        last = line[0]
        for entry in line[1:]:
            if entry[0] < last[1] and entry[2] != last[2]:
                was_frozen = any(name == last[2] and begin < last[1] and last[0] < end for name, begin, end in frozen)
                found["frozen" if was_frozen else "others"] += 1
                if not was_frozen and len(found["examples"]) < _EXAMPLES:
                    found["examples"].append(_overlap(last, entry))
            last = max(last, entry, key=lambda each: each[1])
    return found


def _overlap(first: tuple[float, float, str, Event], second: tuple[float, float, str, Event]) -> str:
    told = [
        f"{name} {call.partition}@{call.offset} {begin:.3f}-{end:.3f}" for begin, end, name, call in (first, second)
    ]
    return f"overlap: {told[0]} and {told[1]}"
