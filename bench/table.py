"""Write the newest figures of bench/results into the pages: ``python bench/table.py``.

docs/performance.md gets the workloads of `laneway bench`, the cost of failures, and the peers with their chart.
README.md gets three figures. Each part stands between two markers. What was not measured leaves its cell, row or
sentence out; a part without any results stays as it is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures

sys.path.append(str(Path(__file__).with_name("peers")))
from tables import lines_of, overhead, overview, setting, span

if TYPE_CHECKING:
    from collections.abc import Iterable

    Entries = dict[str, dict[str, Any]]
    """Figures of an engine, by the arguments of `laneway bench`."""

ROOT = Path(__file__).parents[1]
README, PAGE = ROOT / "README.md", ROOT / "docs" / "performance.md"
PRODUCING = ROOT / "docs" / "producing.md"
PARTS = {README: ("headline",), PAGE: ("figures", "failures", "peers"), PRODUCING: ("producing",)}
"""The markers of each page."""
WIDTH = 125
ROWS = (
    ("15 partitions x 20 lanes, 20 ms async handler (ideal 15,000)", "w1", "parallel-consumer 11,643, zkafka 5,730"),
    ("the same, sync handler on threads", "w1 --handler sync", ""),
    ("15 x 200 lanes (ideal 150,000)", "w6 --lanes 200", "zkafka 32,104, parallel-consumer 17,140"),
    ("15 x 2,000 lanes", "w6 --lanes 2000", "zkafka 69,695"),
    ("no-op handler called per record, sync", "w2", "zkafka 126,500"),
    ("no-op, async", "w2 --handler async", ""),
    ("no-op, columnar", "w2 --handler columnar", ""),
    ("batches of 50 that take 20 ms, 15 x 10 lanes (ideal 375,000)", "w3", "parallel-consumer 64,700"),
)
HEADLINE = (
    ("records/s, handler waits 20 ms, 15 partitions x 20 lanes (ideal 15,000; one call per partition: 750)", "w1"),
    ("records/s, handler does nothing", "w2"),
    ("latency at 2,000 records/s, p50 / p99", "w4"),
)
CONNECTOR = "python bench/connector.py"
CHECKS = ("lost", "duplicates", "inversions", "overlaps")
NAMES = {"spark": "on Spark", "direct": "with the direct engine"}


def main() -> None:
    """Replace the parts of both pages."""
    found = parts(figures.RESULTS)
    for page, markers in PARTS.items():
        text = page.read_text()
        for marker in markers:
            if marker in found:
                text = between(text, marker, found[marker])
        page.write_text(text)


def parts(folder: Path) -> dict[str, str]:
    """The parts that have results, by marker."""
    engines = {engine: figures.read(figures.newest(engine, folder)) for engine in NAMES}
    failures, peers, sent = (figures.read(figures.newest(kind, folder)) for kind in ("failure", "peers", "produce"))
    is_measured = any(facts["results"] for facts in engines.values())
    found = {
        "headline": headline(engines) if is_measured else "",
        "figures": workloads(engines) if is_measured else "",
        "failures": cost_of_failures(failures["results"]),
        "peers": compared(peers, chart(folder)) if peers["results"] else "",
        "producing": producing(sent) if sent["results"] else "",
    }
    return {marker: part for marker, part in found.items() if part}


def between(text: str, marker: str, part: str) -> str:
    """The text with *part* between the two lines of a marker, which stay for the next time."""
    pattern = re.compile(rf"(<!-- {marker} -->\n).*?(<!-- end of {marker} -->)", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"the text has not one pair of lines <!-- {marker} --> and <!-- end of {marker} -->")
    return pattern.sub(lambda match: f"{match[1]}{part.strip()}\n{match[2]}", text)


def headline(engines: dict[str, dict[str, Any]]) -> str:
    """Three figures of both engines, and the machine."""
    entries = {engine: by_command(engine, facts["results"]) for engine, facts in engines.items()}
    everything = [entry for found in entries.values() for entry in found.values()]
    about = filled([f"{machines(engines)}; the best run of each, measured {span(everything)}."])
    lines = [about, "", "| | on Spark | direct |", "| --- | --- | --- |"]
    for what, command in HEADLINE:
        cells = [_shown(found.get(command)) for found in entries.values()]
        if any(cells):
            lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    is_latency = " w4" in entry["command"]
    return f"**{entry['p50_ms']} / {entry['p99_ms']} ms**" if is_latency else f"**{entry['records_per_second']:,.0f}**"


def workloads(engines: dict[str, dict[str, Any]]) -> str:
    """Machine, checks, table and sentences of both engines."""
    entries = {engine: by_command(engine, facts["results"]) for engine, facts in engines.items()}
    everything = [entry for found in entries.values() for entry in found.values()]
    about = f"{machines(engines)}; measured {span(everything)}. {checked(everything)}"
    return "\n\n".join([filled([about]), table(entries), filled([latency(entries), skew(entries), cost(entries)])])


def by_command(engine: str, results: Iterable[dict[str, Any]]) -> Entries:
    """The figures of an engine under the words that a reader types after `laneway bench`."""
    return {
        entry["command"].removeprefix("laneway bench ").removesuffix(f" --engine {engine}"): entry for entry in results
    }


def machines(engines: dict[str, dict[str, Any]]) -> str:
    """The machine; both, if the engines were measured on two."""
    known = {
        engine: f"{machine['cores']} cores shared with the broker, {machine['memory_gib']} GiB, Python "
        f"{machine['python']}, Spark {machine['pyspark']} `local`, confluent-kafka {machine['confluent-kafka']}"
        for engine, facts in engines.items()
        if (machine := facts.get("machine"))
    }
    texts = [*dict.fromkeys(known.values())]
    if len(texts) > 1:
        texts = [f"{NAMES[engine]}: {text}" for engine, text in known.items()]
    others = [entry["command"] for facts in engines.values() for entry in facts["results"] if "machine" in entry]
    if others:
        texts.append(f"`{'`, `'.join(others)}` on another machine or with other versions, see the results")
    return "; ".join(texts)


def checked(entries: list[dict[str, Any]]) -> str:
    """What the checks of all runs found."""
    wrong = [
        f"`{entry['command']}`: " + ", ".join(f"{entry[name]:,} {name}" for name in CHECKS if entry.get(name))
        for entry in entries
        if any(entry.get(name) for name in CHECKS)
    ]
    found = "; ".join(wrong) or "nothing lost, repeated or out of order in any of them"
    return f"Every run of Laneway also checks order and loss: {found}."


def table(entries: dict[str, Entries]) -> str:
    """A row for each workload; the cell of what was not measured is empty."""
    connector = rate(entries["spark"], CONNECTOR)
    lines = [
        "| workload | `laneway bench` | on Spark, records/s | direct, records/s | others on the same machine |",
        "| --- | --- | --- | --- | --- |",
    ]
    for what, command, others in ROWS:
        cells = [cell(entries[engine], command) for engine in NAMES]
        beside = f"Spark's Kafka connector {connector} (`{CONNECTOR}`)" if connector and command == "w2" else ""
        lines.append(f"| {what} | `{command}` | {' | '.join(cells)} | {'; '.join(filter(None, (others, beside)))} |")
    return "\n".join(lines)


def cell(entries: Entries, command: str) -> str:
    """A figure; of several runs the best, marked as such, with the lowest beside it."""
    text = rate(entries, command)
    runs = [found["records_per_second"] for found in entries.get(command, {}).get("runs", ())]
    beside = f" (best of {len(runs)}, lowest {min(runs):,.0f})" if runs else ""
    return f"**{text}**{beside}" if text else ""


def rate(entries: Entries, command: str) -> str:
    entry = entries.get(command)
    return f"{entry['records_per_second']:,.0f}" if entry else ""


def latency(entries: dict[str, Entries]) -> str:
    texts = [
        f"p50 {found['w4']['p50_ms']} ms and p99 {found['w4']['p99_ms']} ms {NAMES[engine]}"
        for engine, found in entries.items()
        if "w4" in found
    ]
    return f"At 2,000 records/s (`w4`), from produce to handled: {', '.join(texts)}." if texts else ""


def skew(entries: dict[str, Entries]) -> str:
    skewed = entries["direct"].get("w5")
    if not skewed or not skewed.get("ratio"):
        return ""
    return f"With skewed keys (`w5`) the direct engine reaches {skewed['ratio']:.1%} of what the hottest key allows."


def cost(entries: dict[str, Entries]) -> str:
    first = entries["direct"].get("w1")
    if not first:
        return ""
    spent = first["cpu_seconds"] / first["records"] * 1e6
    memory = first["rss_mb"]
    return f"A record of `w1` costs the direct engine {spent:.0f} µs of CPU, in one process of {memory:.0f} MB."


def cost_of_failures(results: list[dict[str, Any]]) -> str:
    """The throughput that remains when one record in a hundred fails: a row for each handler."""
    what = {"async": "waits 5 ms", "work": "hashes 20 kB", "sync": "does nothing"}
    policies = ("in-place", "unordered")
    rows = [
        f"| {handler_text} | {' | '.join(part(results, handler, policy) for policy in policies)} |"
        for handler, handler_text in what.items()
        if all(part(results, handler, policy) for policy in policies)
    ]
    head = ["| handler | retries in place | retry topics |", "| --- | --- | --- |"]
    return "\n".join([*head, *rows]) if rows else ""


def part(results: list[dict[str, Any]], handler: str, policy: str) -> str:
    """The throughput that its runs kept, in per cent, from the lowest to the highest."""
    wanted = {"handler": handler, "policy": policy, "failing_percent": 1}
    found = [entry for entry in results if wanted.items() <= entry.items()]
    kept = sorted(entry["part_of_first"] for entry in found)
    ends = [*dict.fromkeys(f"{value * 100:.0f}" for value in (kept[0], kept[-1]))] if kept else []
    medians = [f"{entry['part_of_first_median'] * 100:.0f}" for entry in found if "part_of_first_median" in entry]
    median = f" (median {' and '.join(medians)} %)" if medians else ""
    return f"{' to '.join(ends)} %{median}" if ends else ""


def producing(facts: dict[str, Any]) -> str:
    """What sending costs, beside bare loops: the median of the passes, and the processor time of a message."""
    found = {entry["command"].partition(": ")[2]: entry for entry in facts["results"]}
    rows = []
    for name in dict.fromkeys(command.rpartition(", ")[0] for command in found):
        cells = [found.get(f"{name}, {count} headers") for count in (0, 3)]
        shown = [
            f"{cell['messages_per_second']:,} (best {cell['best']:,}), {cell['cpu_us_per_message']:g} µs"
            if cell
            else ""
            for cell in cells
        ]
        rows.append(f"| {name} | {' | '.join(shown)} |")
    first = next(iter(found.values()))
    text = (
        f"Median of {len(first['passes'])} passes of {first['messages']:,} messages of 200 bytes to a broker on the"
        f" same {facts['machine']['cores']} cores, in messages/s, and processor time of the producing process for each"
        " message."
        f" `python bench/produce.py`, {first['measured'][:10]}."
    )
    return "\n".join(
        [*textwrap.wrap(text, WIDTH), "", "| way | no headers | 3 headers |", "| --- | --- | --- |", *rows]
    )


def compared(facts: dict[str, Any], picture: str) -> str:
    """The peers: chart, overview, and the time of a record beside that of a bare loop in the same results."""
    lines = lines_of(facts["results"])
    page = picture.removesuffix("svg") + "md" if picture else ""
    blocks = [
        f"[![one panel for each workload, a bar for each peer]({picture})]({page})" if picture else "",
        "\n".join(overview(lines)).strip(),
        filled([overhead(lines)]),
        filled([setting(facts), f"CPU, memory and checks of each run: [all figures]({page})." if picture else ""]),
    ]
    return "\n\n".join(filter(None, blocks))


def chart(folder: Path) -> str:
    """Redraw the chart if the peers' environment is installed; returns its path as the page links to it."""
    python = ROOT / ".make" / "peers" / "bin" / "python"
    newest = figures.newest("peers", folder)
    if newest and python.exists():
        subprocess.run([str(python), str(ROOT / "bench" / "peers" / "chart.py"), str(newest)], check=True)
    drawn = folder / "peers.svg"
    return Path(os.path.relpath(drawn, PAGE.parent)).as_posix() if drawn.exists() else ""


def filled(sentences: list[str]) -> str:
    """A paragraph."""
    text = " ".join(filter(None, sentences))
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
