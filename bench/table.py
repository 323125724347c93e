"""Writes the README's table of figures from the newest file of bench/results: ``python bench/table.py``."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = (
    ("15 partitions x 20 lanes, 20 ms async handler (ideal 15,000)", "w1", "parallel-consumer 11,643, zkafka 5,730"),
    ("the same, sync handler on threads", "w1 --handler sync", ""),
    ("15 x 200 lanes (ideal 150,000)", "w6 --lanes 200", "zkafka 32,104, parallel-consumer 17,140"),
    ("15 x 2,000 lanes", "w6 --lanes 2000", "zkafka 69,695"),
    ("no-op handler called per record, sync", "w2", "zkafka 126,500; Spark's Kafka connector {connector}"),
    ("no-op, async", "w2 --handler async", ""),
    ("no-op, columnar", "w2 --handler columnar", ""),
    ("batches of 50 that take 20 ms, 15 x 10 lanes (ideal 375,000)", "w3", "parallel-consumer 64,700"),
)


def figures(engine: str) -> dict[str, dict]:
    """The newest figures of an engine, by command."""
    path = max((ROOT / "bench" / "results").glob(f"*-{engine}.json"))
    return {
        result["command"].removeprefix("laneway bench ").removesuffix(f" --engine {engine}"): result
        for result in json.loads(path.read_text())["results"]
    }


def main() -> None:
    results, direct = figures("spark"), figures("direct")
    connector = f"{results['w2 --engine spark-connector']['records_per_second']:,.0f} (same run)"
    lines = [
        "| workload | `laneway bench` | on Spark, records/s | direct | others on the same machine |",
        "| --- | --- | --- | --- | --- |",
    ]
    for what, command, others in ROWS:
        rates = [f"**{found[command]['records_per_second']:,.0f}**" if command in found else "" for found in
                 (results, direct)]  # fmt: skip
        lines.append(f"| {what} | `{command}` | {' | '.join(rates)} | {others.format(connector=connector)} |")
    spark, own, skewed = results["w4"], direct["w4"], direct["w5"]
    lines += [
        "",
        (
            "At 2,000 records/s (`w4`), from produce to handled: "
            f"p50 {spark['p50_ms']} ms and p99 {spark['p99_ms']} ms on Spark, "
            f"{own['p50_ms']} and {own['p99_ms']} ms with the direct engine. "
            f"With skewed keys (`w5`) the direct engine reaches {skewed['ratio']:.1%} of what the hottest key allows."
        ),
    ]
    readme = ROOT / "README.md"
    text = re.sub(
        r"(<!-- figures -->\n).*?(\n<!-- end of figures -->)",
        lambda match: match[1] + "\n".join(lines) + match[2],
        readme.read_text(),
        flags=re.DOTALL,
    )
    readme.write_text(text)


if __name__ == "__main__":
    main()
