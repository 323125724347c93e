"""Claim and done per second through laneway's stores and client: ``python bench/dedup.py [--records 200000]``."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from machine import machine, tempo

from laneway.dedup import DedupClient, PostgresDedup, RedisDedup, SqliteDedup

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.stores import postgres_server, redis_server  # noqa: E402 - a folder of the tests

GOALS = {"redis": 80_000, "postgres": 45_000, "sqlite": 250_000}
PAYLOAD = b"0123456789abcdef"


def ids(run: int, count: int) -> list[str]:
    return [f"order-{run:03d}-{at:09d}" for at in range(count)]


def through_session(store, names, size):
    """One connection, one call after the other: what the store itself allows."""
    session = store.session("bench", "bench")
    payloads = [PAYLOAD] * size
    began = time.perf_counter()
    for at in range(0, len(names), size):
        part = names[at : at + size]
        reply = session.claim(part, payloads[: len(part)])
        assert not reply.refused
        assert session.finish(part, payloads[: len(part)], [reply.token] * len(part)) == []
    seconds = time.perf_counter() - began
    session.close()
    return len(names) / seconds


def through_client(store, names, size, lanes):
    """Lanes that claim, and mark what they have: what handlers do."""
    from laneway.dedup._transaction import Claim

    client = DedupClient(store, "bench")
    work = [names[at : at + size] for at in range(0, len(names), size)]
    left = threading.Semaphore(0)

    def lane(which: int) -> None:
        for part in work[which::lanes]:
            answer = client.claim(part, [PAYLOAD] * len(part)).result()
            assert not answer.refused
            client.finish([Claim(name, PAYLOAD, answer.token) for name in part], left.release)

    began = time.perf_counter()
    threads = [threading.Thread(target=lane, args=(which,)) for which in range(lanes)]
    for thread in threads:
        thread.start()
    for _ in work:
        left.acquire()
    seconds = time.perf_counter() - began
    for thread in threads:
        thread.join()
    client.close()
    return len(names) / seconds


MEASURES = (
    ("session, batches of 1", 100, through_session, 1),
    ("session, batches of 50", 4, through_session, 50),
    ("session, batches of 500", 1, through_session, 500),
    ("client, 1 lane, turns of 500", 1, through_client, 500, 1),
    ("client, 4 lanes, turns of 500", 1, through_client, 500, 4),
    ("client, 100 lanes, turns of 1", 10, through_client, 1, 100),
)
"""What is measured, and by how much fewer records."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--stores", default="sqlite,redis,postgres")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    options = parser.parse_args()
    found, run = {}, 0
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        for name in options.stores.split(","):
            if name == "sqlite":
                store = SqliteDedup(Path(folder) / "ids.db")
            elif name == "redis":
                store = RedisDedup(stack.enter_context(redis_server()).url)
            else:
                store = PostgresDedup(stack.enter_context(postgres_server()).dsn)
            rows = {}
            for label, count, measure, *sizes in MEASURES:
                rates = []
                for _ in range(options.repeat):
                    run += 1
                    rates.append(measure(store, ids(run, options.records // count), *sizes))
                rows[label] = round(statistics.median(rates))
                print(f"{name:9} {label:32} {rows[label]:>9,} claim + done/s", flush=True)
            rows["goal"] = GOALS[name]
            found[name] = rows
    if options.save:
        today = datetime.now(UTC).date()
        path = ROOT / "bench" / "results" / f"{today}-dedup.json"
        path.write_text(
            json.dumps({"machine": machine(), "tempo": tempo(), "claim_and_done_per_second": found}, indent=2) + "\n"
        )
        print(path)


if __name__ == "__main__":
    main()
