"""The demo's records are skewed, mixed and always the same."""

from __future__ import annotations

from collections import Counter

import pytest

from laneway.devkit.demo import Mix, make_orders
from laneway.devkit.demo._app import orders
from laneway.errors import CodecError


@pytest.fixture(name="made", scope="module")
def _made():
    mix = Mix()
    return mix, list(make_orders(60_000, mix))


def test_the_same_seed_makes_the_same_orders():
    """A run can be repeated."""
    assert list(make_orders(500, Mix())) == list(make_orders(500, Mix()))


def test_the_busiest_key_is_busy_but_does_not_decide_the_run(made):
    """It has three times the average, and less than one record in 300, which is what one of 300 lanes can do."""
    _, pairs = made
    counts = Counter(key for key, _ in pairs)
    busiest = max(counts.values())

    assert (busiest > 3 * len(pairs) / len(counts), busiest < len(pairs) / 300) == (True, True)


def test_every_kind_of_record_is_there_and_counted(made):
    """What the mix says is what the values are."""
    mix, pairs = made
    values = [value for _, value in pairs]
    decoded = []
    poison = 0
    for value in values:
        try:
            decoded += [] if value is None else [orders.value.decode(value)]
        except CodecError:
            poison += 1
    found = Mix(
        len(values),
        poison,
        sum(order.cents < 0 for order in decoded),
        sum(order.card == "unstable" for order in decoded),
        values.count(None),
    )

    assert found == mix
    assert min(mix.poison, mix.negative, mix.unstable, mix.deleted) > 50
