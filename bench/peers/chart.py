"""Draws the peers' figures and writes their tables: ``python bench/peers/chart.py [RESULTS.json]``.

It writes peers.svg, peers.png and peers.md beside the results. It needs the peers' environment.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from tables import Line, lines_of, page, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LANEWAY, LANEWAY_PALE, PEER, PEER_PALE, INK, FAINT, WARN = (
    "#0b63ce",
    "#a9cbf5",
    "#8b95a3",
    "#d3d8df",
    "#1f2933",
    "#6b7684",
    "#c2410c",
)
HATCHED = {"facecolor": PEER_PALE, "hatch": "////", "edgecolor": "white"}
PANELS = {
    "w1": "W1: 20 ms handler, 300 at once\nrecords per second, more is better",
    "w5": "W5: the same with skewed keys, Zipf(1.1)\nrecords per second, more is better",
    "w2": "W2: no-op handler, called for each record\nrecords per second, more is better",
    "w3": "W3: batches of 50 that take 20 ms, 150 at once\nrecords per second, more is better",
    "w4": "W4: latency at 2,000 records per second\nmilliseconds, p50 (dark) and p99 (pale), log scale, less is better",
    "cpu": "CPU of W1, start-up included\nCPU seconds per million records, less is better",
}
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": "#c5ccd6",
    "xtick.color": FAINT,
    "ytick.color": INK,
    "svg.hashsalt": "laneway",  # the same figures give the same file
}


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else newest()
    facts = json.loads(path.read_text())
    lines = lines_of(facts["results"])
    with mpl.rc_context(STYLE):
        figure = draw(lines, facts)
        figure.savefig(path.with_name("peers.svg"), metadata={"Date": None})
        figure.savefig(path.with_name("peers.png"), dpi=130)
    path.with_name("peers.md").write_text(page(lines, facts, "peers.svg"))
    print(path.with_name("peers.md"))


def newest() -> Path:
    return max((Path(__file__).parents[1] / "results").glob("*-peers.json"))


def draw(lines: list[Line], facts: dict[str, Any]) -> Figure:
    """One panel for each workload, in two columns."""
    shown = {name: chosen(name, lines) for name in PANELS}
    names = [name for name, members in shown.items() if members]
    rows = (len(names) + 1) // 2
    heights = [max(len(shown[name]) for name in names[row * 2 : row * 2 + 2]) + 2.6 for row in range(rows)]
    figure = Figure(figsize=(15.5, 0.34 * sum(heights) + 1.8), facecolor="white", layout="constrained")
    figure.get_layout_engine().set(h_pad=0.12, w_pad=0.08)
    grid = figure.add_gridspec(rows, 2, height_ratios=heights)
    drawn = {"w4": latencies, "cpu": costs}
    for number, name in enumerate(names):
        axes = figure.add_subplot(grid[number // 2, number % 2])
        drawn.get(name, rates)(axes, shown[name])
        axes.set_title(PANELS[name], loc="left", fontsize=10, linespacing=1.35, pad=16)
    title = "Laneway and its peers, on the same topics of one broker"
    figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold")
    legend(figure)
    figure.supxlabel(setting(facts), x=0.012, ha="left", fontsize=8.5, color=FAINT)
    return figure


def chosen(name: str, lines: list[Line]) -> list[Line]:
    """The peers in a panel. A peer that failed or hung has no bar, and a note."""
    if name == "cpu":
        members = [line for line in lines if line.workload == "w1" and line.cpu]
        # With few records the start-up is all there is: those who got fewer are left out.
        return [line for line in members if line.records == max(member.records for member in members)]
    return [line for line in lines if line.workload == name and line.state != "left out"]


def rates(axes: Axes, lines: list[Line]) -> None:
    """The fastest on top; below them those that broke the order, because they did not do the same work."""
    lines = sorted(lines, key=lambda line: (bool(line.rate), not line.breaks_order, line.rate or 0))
    ideal = max((line.ideal for line in lines if line.ideal and not line.told), default=0.0)
    top = max([line.rate or 0 for line in lines if not line.breaks_order] or [line.rate or 0 for line in lines]) or 1.0
    if 0 < ideal < 3 * top:
        top = max(top, ideal)
        axes.axvline(ideal, color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0.5)
        axes.annotate(
            f"ideal {ideal:,.0f}", (ideal, len(lines) - 0.5), ha="center", va="bottom", fontsize=8, color=FAINT
        )
    for row, line in enumerate(lines):
        rate = line.rate or 0
        beyond = "\N{RIGHTWARDS ARROW} " if rate > 1.05 * top else ""
        bar(axes, row, min(rate, 1.05 * top), line, f"{beyond}{rate:,.0f}" if rate else "")
    axes.set_xlim(0, top * 1.25)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    finish(axes, lines)


def costs(axes: Axes, lines: list[Line]) -> None:
    lines = sorted(lines, key=lambda line: (not line.breaks_order, -(line.cpu or 0)))
    for row, line in enumerate(lines):
        bar(axes, row, line.cpu or 0, line, f"{line.cpu:,.0f}")
    axes.set_xlim(0, max(line.cpu or 0 for line in lines) * 1.2)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    finish(axes, lines)


def latencies(axes: Axes, lines: list[Line]) -> None:
    lines = sorted(lines, key=lambda line: line.p50 or float("inf"), reverse=True)
    axes.set_xscale("log")
    axes.set_xlim(1, max([line.p99 or 1 for line in lines] + [10]) * 6)
    for row, line in enumerate(lines):
        if line.p50 and line.p99:
            bar(axes, row, line.p99, line, f"{line.p50:,.1f} / {line.p99:,.0f}", pale=True)
            axes.barh(row, line.p50, height=0.68, color=LANEWAY if line.is_laneway else PEER, linewidth=0)
        else:
            bar(axes, row, 1, line, "")  # where the axis begins
    finish(axes, lines)


def bar(axes: Axes, row: int, length: float, line: Line, figure: str, *, pale: bool = False) -> None:
    colour = (LANEWAY_PALE if pale else LANEWAY) if line.is_laneway else PEER_PALE if pale else PEER
    fill = HATCHED if line.breaks_order else {"color": colour}
    axes.barh(row, length, height=0.68, linewidth=0, **fill)
    # A white ground, so that a line behind a figure does not cross it out.
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    place = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
    text = ", ".join(filter(None, (figure, line.told))) or "no figure"
    colour = WARN if line.told else INK
    axes.annotate(text, (length, row), **place, fontsize=9, fontweight=weight(line), color=colour, bbox=ground)


def finish(axes: Axes, lines: list[Line]) -> None:
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_yticks(range(len(lines)), [label(line) for line in lines], fontsize=9)
    for text, line in zip(axes.get_yticklabels(), lines, strict=True):
        text.set_fontweight(weight(line))
        if line.is_laneway:
            text.set_color(LANEWAY)
        elif line.wrong:
            text.set_color(WARN)
    axes.tick_params(axis="both", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_ylim(-0.6, len(lines) - 0.4)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="#e8ebef", linewidth=0.8)


def label(line: Line) -> str:
    """The name and, below it, what was wrong or is to be known; the whole text is in the table."""
    remark = textwrap.shorten(line.wrong or line.why, 46, placeholder=" …")
    return f"{line.title}\n({remark})" if remark else line.title


def weight(line: Line) -> str:
    return "bold" if line.is_laneway else "normal"


def legend(figure: Figure) -> None:
    entries = [
        Patch(color=LANEWAY, label="Laneway"),
        Patch(color=PEER, label="peer that keeps the order of each key"),
        Patch(**HATCHED, label="peer that breaks it"),
    ]
    figure.legend(handles=entries, loc="outside upper right", ncols=3, frameon=False, fontsize=9)


def setting(facts: dict[str, Any]) -> str:
    machine = facts["machine"]
    named = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    shared = f"{machine['cores']} cores and {machine['memory_gib']} GiB"
    return (
        f"15 partitions, 10,000 keys, 200-byte values. {shared}, shared by broker, producer and "
        f"consumer; {machine['system']}, Python {machine['python']}. "
        f"Measured {span(facts['results'])}.\n{named}; Laneway itself on confluent-kafka "
        f"{machine['confluent-kafka']}.\n"
        "Checked in each of these runs: order of each key, loss, duplicates. What was found stands below the name; "
        "where nothing stands, nothing was."
    )


if __name__ == "__main__":
    main()
