"""examples/billing.py on a real broker and Spark."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_billing_sends_receipts_and_parks_the_rest(examples):
    """Each good order has one receipt, in its customer's order; the others are on the error topic with the reason."""
    examples.produce("orders", 1000)
    said = examples.run("billing:app")

    receipts = examples.read("receipts")
    numbers = defaultdict(list)
    for receipt in receipts:
        numbers[receipt.key].append(json.loads(receipt.raw)["number"])
    assert (len(receipts), len(numbers)) == (967, 98)
    assert [key for key, line in numbers.items() if line != sorted(set(line))] == []
    reasons = Counter(copy.header("laneway-error-type").decode() for copy in examples.read("orders.billing.error"))
    assert reasons == {"laneway.errors.Reject": 17, "laneway.errors.CodecError": 16}
    assert "967 handled, 0 skipped, 33 parked" in said

    # A second run, on the other engine and with a profile of the configuration, goes on where the first has ended.
    examples.produce("orders", 50)
    assert "49 handled, 0 skipped, 1 parked" in examples.run("billing:app", "--engine", "direct", "--profile", "fast")
