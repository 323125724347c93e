"""The figures of a results file, one line for each peer and workload, and as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

__all__ = ["Line", "lines_of", "markdown"]

_TITLES = {
    "w1": "W1: 20 ms handler, records/s",
    "w2": "W2: no-op handler, records/s",
    "w3": "W3: batches of 50, 20 ms, records/s",
    "w4": "W4: latency at 2,000/s, p50 / p99 ms",
    "w5": "W5: W1 with Zipf keys, records/s",
}


@dataclass(frozen=True, slots=True)
class Line:
    """What one peer did in one workload: medians of its runs, and everything wrong that was seen in any of them."""

    workload: str
    peer: str
    title: str
    state: str
    why: str
    runs: int = 0
    records: int = 0
    rate: float | None = None
    p50: float | None = None
    p99: float | None = None
    cpu: float | None = None
    """CPU seconds for a million records, start-up included."""
    rss: float | None = None
    wrong: str = ""
    foreign: float = 0.0
    ideal: float | None = None

    @property
    def is_laneway(self) -> bool:
        return self.peer.startswith("laneway")

    @property
    def breaks_order(self) -> bool:
        return "order" in self.wrong


def lines_of(results: list[dict[str, Any]]) -> list[Line]:
    """One line for each workload and peer, in the order of the runs."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["workload"], result["peer"]), []).append(result)
    return [_line(runs) for runs in groups.values()]


def _line(runs: list[dict[str, Any]]) -> Line:
    # A run that did not finish says so, whatever the others reached.
    worst = min(runs, key=lambda run: run["state"] == "finished")
    named = {name: worst[name] for name in ("workload", "peer", "title", "state")}
    if worst["state"] in ("left out", "failed"):
        return Line(**named, why=worst["why"])

    def middle(name: str) -> float | None:
        values = [run[name] for run in runs if run.get(name) is not None]
        return median(values) if values else None

    return Line(
        **named,
        why=worst["remark"],
        runs=len(runs),
        records=worst["records"],
        rate=middle("records_per_second"),
        p50=middle("p50_ms"),
        p99=middle("p99_ms"),
        cpu=median(run["cpu_seconds"] / max(1, run["handled"]) * 1e6 for run in runs),
        rss=middle("rss_mb"),
        wrong=_wrong(runs),
        foreign=max(run["foreign_cores"] for run in runs),
        ideal=worst.get("ideal_per_second"),
    )


def _wrong(runs: list[dict[str, Any]]) -> str:
    most = {name: max(run[name] or 0 for run in runs) for name in ("lost", "duplicates", "inversions", "overlaps")}
    disorder = most["inversions"] + most["overlaps"]
    found = [f"order broken {disorder:,} times"] if disorder else []
    return ", ".join(found + [f"{most[name]:,} {name}" for name in ("lost", "duplicates") if most[name]])


def markdown(lines: list[Line], facts: dict[str, Any]) -> str:
    """The overview for the README and, below it, one table for each workload."""
    return "\n".join([*_overview(lines), "", _setting(facts), *_details(lines)])


def _overview(lines: list[Line]) -> list[str]:
    workloads = [name for name in _TITLES if any(line.workload == name for line in lines)]
    cells = {(line.workload, line.peer): line for line in lines}
    notes: list[str] = []
    table = ["| | " + " | ".join(_TITLES[name] for name in workloads) + " |", "| --- |" + " --- |" * len(workloads)]
    for peer, title in dict.fromkeys((line.peer, line.title) for line in lines):
        row = [_cell(cells[name, peer], notes) if (name, peer) in cells else "" for name in workloads]
        name = f"**{title}**" if peer.startswith("laneway") else title
        table.append(f"| {name} | " + " | ".join(row) + " |")
    return [*table, "", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]


def _cell(line: Line, notes: list[str]) -> str:
    remarks = [line.why, line.wrong]
    if line.state == "left out":
        return "-" + _marked([line.why], notes)
    if line.state == "failed":
        return "failed" + _marked([line.why], notes)
    if line.state != "finished":
        remarks.append(line.state)
    figure = f"{line.p50:,.1f} / {line.p99:,.1f}" if line.p50 is not None else f"{line.rate or 0:,.0f}"
    return (f"**{figure}**" if line.is_laneway else figure) + _marked(remarks, notes)


def _marked(remarks: list[str], notes: list[str]) -> str:
    """Numbers of footnotes, each text once."""
    numbers = []
    for remark in filter(None, remarks):
        if remark not in notes:
            notes.append(remark)
        numbers.append(str(notes.index(remark) + 1))
    return f" <sup>{', '.join(numbers)}</sup>" if numbers else ""


def _setting(facts: dict[str, Any]) -> str:
    machine, versions = facts["machine"], facts["versions"]
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}; "
        f"broker, producer and consumer on the same machine. {named}."
    )


def _details(lines: list[Line]) -> list[str]:
    texts = []
    for name, title in _TITLES.items():
        chosen = [line for line in lines if line.workload == name]
        if not chosen:
            continue
        texts += ["", f"**{title}**", ""]
        texts.append("| | records | figure | CPU s per million | peak MB | checks | runs | foreign cores |")
        texts.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
        texts += [_detail(line) for line in chosen]
    return texts


def _detail(line: Line) -> str:
    if line.cpu is None:
        return f"| {line.title} | | {line.state}: {line.why} | | | | | |"
    figure = f"{line.p50} / {line.p99}" if line.p50 is not None else f"{line.rate or 0:,.0f}"
    state = "" if line.state == "finished" else f" ({line.state})"
    remark = f" ({line.why})" if line.why else ""
    checks = line.wrong or ("not seen" if line.peer == "confluent-count" else "kept, none lost or repeated")
    numbers = f"{line.cpu:,.1f} | {line.rss or 0:,.0f} | {checks} | {line.runs} | {line.foreign}"
    return f"| {line.title}{remark} | {line.records:,} | {figure}{state} | {numbers} |"
