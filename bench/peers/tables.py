"""The figures of a results file, one line for each peer and workload, and as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

__all__ = ["Line", "lines_of", "overhead", "overview", "page", "setting", "span"]

_TITLES = {
    "w1": "W1: 20 ms handler, records/s",
    "w2": "W2: no-op handler, records/s",
    "w3": "W3: batches of 50, 20 ms, records/s",
    "w4": "W4: latency at 2,000/s, p50 / p99 ms",
    "w5": "W5: W1 with Zipf keys, records/s",
}
_LOOP, _DIRECT = "confluent", "laneway-direct"
_LONGEST = 120


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
    breaks_order: bool = False
    foreign: float = 0.0
    ideal: float | None = None

    @property
    def is_laneway(self) -> bool:
        return self.peer.startswith("laneway")

    @property
    def told(self) -> str:
        """How it ended, if not well."""
        return "" if self.state == "finished" else self.state


def lines_of(results: list[dict[str, Any]]) -> list[Line]:
    """One line for each workload and peer, in the order of the runs."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["workload"], result["peer"]), []).append(result)
    return [_line(runs) for runs in groups.values()]


def _line(runs: list[dict[str, Any]]) -> Line:
    measured = [run for run in runs if run["state"] not in ("left out", "failed")]
    # A run that did not finish says so, whatever the others reached.
    worst = min(measured or runs, key=lambda run: run["state"] == "finished")
    named = {name: worst[name] for name in ("workload", "peer", "title", "state")}
    if not measured:
        return Line(**named, why=_plain(worst["why"]))
    handled = [run for run in measured if run["handled"]]
    return Line(
        **named,
        why=worst["remark"],
        runs=len(measured),
        records=worst["records"],
        rate=_middle(measured, "records_per_second"),
        p50=_middle(measured, "p50_ms"),
        p99=_middle(measured, "p99_ms"),
        cpu=median(run["cpu_seconds"] / run["handled"] * 1e6 for run in handled) if handled else None,
        rss=_middle(measured, "rss_mb"),
        wrong=_wrong(measured, [run for run in runs if run["state"] == "failed"]),
        breaks_order=any(run["inversions"] or run["overlaps"] for run in measured),
        foreign=max(run["foreign_cores"] for run in measured),
        ideal=worst.get("ideal_per_second"),
    )


def _middle(runs: list[dict[str, Any]], name: str) -> float | None:
    values = [run[name] for run in runs if run.get(name) is not None]
    return median(values) if values else None


def _wrong(runs: list[dict[str, Any]], failed: list[dict[str, Any]]) -> str:
    most = {name: max(run[name] or 0 for run in runs) for name in ("lost", "duplicates", "inversions", "overlaps")}
    disorder = most["inversions"] + most["overlaps"]
    found = [f"order broken {disorder:,} times"] if disorder else []
    found += [f"{most[name]:,} {name}" for name in ("lost", "duplicates") if most[name]]
    if failed:
        found.append(f"{len(failed)} of {len(runs) + len(failed)} runs failed: {_plain(failed[-1]['why'])}")
    return ", ".join(found)


def _plain(text: str) -> str:
    """The last words of a program, fit for a cell: no bars, no tags, not too long."""
    text = " ".join(text.split()).replace("|", "/").replace("<", "(").replace(">", ")")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def page(lines: list[Line], facts: dict[str, Any], chart: str = "") -> str:
    """All figures: chart, overview and, below it, one table for each workload."""
    head = ["# Laneway and its peers, measured", "", setting(facts), ""]
    picture = [f"![one panel for each workload]({chart})", ""] if chart else []
    ratio = overhead(lines)
    return "\n".join([*head, *picture, *overview(lines), *([ratio] if ratio else []), *_details(lines), ""])


def overview(lines: list[Line]) -> list[str]:
    """A row for each peer, a column for each workload, and what is to be said of the cells."""
    workloads = [name for name in _TITLES if any(line.workload == name for line in lines)]
    cells = {(line.workload, line.peer): line for line in lines}
    notes: list[str] = []
    table = ["| | " + " | ".join(_TITLES[name] for name in workloads) + " |", "| --- |" + " --- |" * len(workloads)]
    for peer, title in dict.fromkeys((line.peer, line.title) for line in lines):
        row = [_cell(cells[name, peer], notes) if (name, peer) in cells else "" for name in workloads]
        name = f"**{title}**" if peer.startswith("laneway") else title
        table.append(f"| {name} | " + " | ".join(row) + " |")
    return [*table, "", *(f"{number}. {note}" for number, note in enumerate(notes, 1)), *([""] if notes else [])]


def overhead(lines: list[Line]) -> str:
    """What a record of W2 costs Laneway beside a bare loop that calls the same no-op, of the same results.

    Only the direct engine is held against it: both are one process, while Spark works on all cores at once.
    """
    times = {line.peer: 1e6 / line.rate for line in lines if line.workload == "w2" and line.rate and not line.told}
    bare, own = times.get(_LOOP), times.get(_DIRECT)
    if not bare or not own:
        return ""
    return (
        f"**Overhead** (W2): a record takes {own:.2f} µs with Laneway's direct engine and {bare:.2f} µs in a bare "
        f"confluent-kafka consume loop that calls the same no-op: {own / bare:.2f} times as long."
    )


def _cell(line: Line, notes: list[str]) -> str:
    if not line.runs:
        return ("-" if line.state == "left out" else line.state) + _marked([line.why], notes)
    return (f"**{_figure(line)}**" if line.is_laneway else _figure(line)) + _marked(
        [line.why, line.wrong, line.told], notes
    )


def _figure(line: Line) -> str:
    if line.workload == "w4":
        return f"{line.p50:,.1f} / {line.p99:,.1f}" if line.p50 is not None and line.p99 is not None else "none"
    return f"{line.rate:,.0f}" if line.rate else "none"


def _marked(remarks: list[str], notes: list[str]) -> str:
    """Numbers of footnotes, each text once."""
    numbers = []
    for remark in filter(None, remarks):
        if remark not in notes:
            notes.append(remark)
        numbers.append(str(notes.index(remark) + 1))
    return f" <sup>{', '.join(numbers)}</sup>" if numbers else ""


def setting(facts: dict[str, Any]) -> str:
    """The machine, the versions and the time."""
    machine, versions = facts["machine"], facts["versions"]
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}; "
        f"broker, producer and consumer on the same machine. {named}; "
        f"Laneway itself on confluent-kafka {machine['confluent-kafka']}. "
        f"Measured {span(facts['results'])}."
    )


def span(results: list[dict[str, Any]]) -> str:
    """When figures were measured: on a day, or from one day to another."""
    days = sorted({result["measured"].split(" ")[0] for result in results if "measured" in result})
    if not days:
        return "on a day that was not kept"
    return f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"


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
    if not line.runs:
        return f"| {line.title} | | {line.state}: {line.why} | | | | | |"
    state = f" ({line.told})" if line.told else ""
    remark = f" ({line.why})" if line.why else ""
    kept = "kept as far as it came" if line.told else "kept, none lost or repeated"
    checks = line.wrong or ("not seen" if line.peer == "confluent-count" else kept)
    cpu = f"{line.cpu:,.1f}" if line.cpu else ""
    numbers = f"{cpu} | {line.rss or 0:,.0f} | {checks} | {line.runs} | {line.foreign}"
    return f"| {line.title}{remark} | {line.records:,} | {_figure(line)}{state} | {numbers} |"
