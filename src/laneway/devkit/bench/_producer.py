"""The producing process: ``python -m laneway.devkit.bench._producer BROKERS TOPIC RECORDS KEYS RATE SKEWED``."""

from __future__ import annotations

import sys

from laneway._kafka import produce_many
from laneway.devkit.bench._keys import skewed
from laneway.devkit.bench._workloads import VALUE_SIZE


def main() -> None:
    """Produce and wait for the acknowledgements."""
    brokers, topic, records, keys, rate, is_skewed = sys.argv[1:]
    value = (b'{"payload": "' + b"x" * VALUE_SIZE)[: VALUE_SIZE - 2] + b'"}'
    numbers = skewed(int(records), int(keys)) if int(is_skewed) else (n % int(keys) for n in range(int(records)))
    pairs = ((b"key-%d" % number, value) for number in numbers)
    produce_many({"bootstrap.servers": brokers, "acks": "all"}, topic, pairs, rate=int(rate) or None)


if __name__ == "__main__":
    main()
