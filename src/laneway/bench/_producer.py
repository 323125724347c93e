"""The producing process: ``python -m laneway.bench._producer BROKERS TOPIC RECORDS KEYS RATE``."""

from __future__ import annotations

import sys

from laneway.bench._workloads import VALUE_SIZE
from laneway.kafka import produce_many


def main() -> None:
    """Produce and wait for the acknowledgements."""
    brokers, topic, records, keys, rate = sys.argv[1:]
    value = (b'{"payload": "' + b"x" * VALUE_SIZE)[: VALUE_SIZE - 2] + b'"}'
    pairs = ((b"key-%d" % (number % int(keys)), value) for number in range(int(records)))
    produce_many({"bootstrap.servers": brokers, "acks": "all"}, topic, pairs, rate=int(rate) or None)


if __name__ == "__main__":
    main()
