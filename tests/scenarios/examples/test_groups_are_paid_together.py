"""examples/groups.py on a real broker."""

from __future__ import annotations

import json
from collections import Counter

import pytest

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_groups_are_paid_together(examples):
    """Each payment of an open merchant is in one of its transfers; those of the closed one are parked."""
    examples.produce("payments", 900)
    said = examples.run("groups:app", "--engine", "direct")

    transfers = [json.loads(record.raw) for record in examples.read("transfers")]
    paid = [(number, transfer["merchant"]) for transfer in transfers for number in transfer["payments"]]
    assert sorted(paid) == [(number, f"merchant-{number % 9}") for number in range(900) if number % 9 != 8]
    assert [t["cents"] for t in transfers] == [sum(100 + number for number in t["payments"]) for t in transfers]
    assert max(len(transfer["payments"]) for transfer in transfers) == 20
    reasons = Counter(copy.header("laneway-error-message") for copy in examples.read("payments.groups.error"))
    assert reasons == {b"merchant-8 is closed": 100}
    assert "800 handled, 0 skipped, 100 parked" in said
