"""Puts the newest figures of bench/results into the README, between its markers: ``python bench/table.py``.

The workloads of `laneway bench`, what failures cost, and the peers with their chart. What was not measured leaves its
cell or its sentence out; a part without any results stays as it is.
"""

from __future__ import annotations

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
    """Figures of an engine, by what `laneway bench` is told."""

ROOT = Path(__file__).parents[1]
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
CONNECTOR = "w2 --engine spark-connector"
CHECKS = ("lost", "duplicates", "inversions", "overlaps")
NAMES = {"spark": "on Spark", "direct": "with the direct engine"}


def main() -> None:
    """Write the README anew."""
    readme = ROOT / "README.md"
    text = readme.read_text()
    for marker, part in parts(figures.RESULTS).items():
        text = between(text, marker, part)
    readme.write_text(text)


def parts(folder: Path) -> dict[str, str]:
    """What there are results for, by marker."""
    engines = {engine: figures.read(figures.newest(engine, folder)) for engine in NAMES}
    failures, peers = (figures.read(figures.newest(kind, folder)) for kind in ("failure", "peers"))
    found = {
        "figures": workloads(engines) if any(facts["results"] for facts in engines.values()) else "",
        "failures": cost_of_failures(failures["results"]),
        "peers": compared(peers, chart(folder)) if peers["results"] else "",
    }
    return {marker: part for marker, part in found.items() if part}


def between(text: str, marker: str, part: str) -> str:
    """The text with *part* between the two lines of a marker, which stay for the next time."""
    pattern = re.compile(rf"(<!-- {marker} -->\n).*?(<!-- end of {marker} -->)", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"the text has not one pair of lines <!-- {marker} --> and <!-- end of {marker} -->")
    return pattern.sub(lambda match: f"{match[1]}{part.strip()}\n{match[2]}", text)


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
    return f"Every run of laneway also checks order and loss: {found}."


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
    """A figure; of several runs the best, which is told, and how low the others were."""
    text = rate(entries, command)
    runs = [found["records_per_second"] for found in entries.get(command, {}).get("runs", ())]
    beside = f" (best of {len(runs)}, least {min(runs):,.0f})" if runs else ""
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
    """What is left of the throughput when one record in a hundred fails."""
    what = {"async": "a handler of 5 ms", "work": "one that hashes 20 kB", "sync": "one that does nothing"}
    texts = [
        f"{handler_text} keeps {part(results, handler, 'in-place')} of its throughput with retries in place and "
        f"{part(results, handler, 'unordered')} with retry topics"
        for handler, handler_text in what.items()
        if part(results, handler, "in-place") and part(results, handler, "unordered")
    ]
    told = (
        f"When one record in a hundred fails (`python bench/failure.py`, on Spark; the best passes, and the median of "
        f"turns, each beside a pass without failures), "
        f"{'; '.join(texts)}."
    )
    return filled([told]) if texts else ""


def part(results: list[dict[str, Any]], handler: str, policy: str) -> str:
    """What its runs kept, from the least to the most."""
    wanted = {"handler": handler, "policy": policy, "failing_percent": 1}
    found = [entry for entry in results if wanted.items() <= entry.items()]
    kept = sorted(entry["part_of_first"] for entry in found)
    ends = [*dict.fromkeys(f"{value * 100:.0f}" for value in (kept[0], kept[-1]))] if kept else []
    medians = [f"{entry['part_of_first_median'] * 100:.0f}" for entry in found if "part_of_first_median" in entry]
    told = f" (median {' and '.join(medians)} %)" if medians else ""
    return f"{' to '.join(ends)} %{told}" if ends else ""


def compared(facts: dict[str, Any], picture: str) -> str:
    """The peers: chart, overview, and what Laneway costs beside a bare loop of the same results."""
    lines = lines_of(facts["results"])
    page = str(Path(picture).with_name("peers.md")) if picture else ""
    blocks = [
        f"[![one panel for each workload, a bar for each peer]({picture})]({page})" if picture else "",
        "\n".join(overview(lines)).strip(),
        filled([overhead(lines)]),
        filled([setting(facts), f"CPU, memory and checks of each run: [all figures]({page})." if picture else ""]),
    ]
    return "\n\n".join(filter(None, blocks))


def chart(folder: Path) -> str:
    """Draw the chart anew, if the peers' environment is there, and give the path that the README links to."""
    python = ROOT / ".make" / "peers" / "bin" / "python"
    newest = figures.newest("peers", folder)
    if newest and python.exists():
        subprocess.run([str(python), str(ROOT / "bench" / "peers" / "chart.py"), str(newest)], check=True)
    drawn = folder / "peers.svg"
    return drawn.relative_to(ROOT).as_posix() if drawn.exists() and drawn.is_relative_to(ROOT) else ""


def filled(sentences: list[str]) -> str:
    """A paragraph."""
    text = " ".join(filter(None, sentences))
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
