"""The records of the demo: skewed keys, and a few of each failure of real topics. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from laneway.devkit.demo._app import Order, orders

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Mix", "make_orders"]

CUSTOMERS = 2_000
# The busiest of 2,000 customers has 1 order in 550, four times the average. A key is handled one record at a time, so
# with 300 lanes a key with more than 1 record in 300 would decide how long the whole run takes.
_SKEW = 0.2
_POISON, _NEGATIVE, _UNSTABLE, _DELETED = 0.002, 0.003, 0.005, 0.005


@dataclass(slots=True)
class Mix:
    """How many records there are of each kind."""

    total: int = 0
    poison: int = 0
    """Not JSON at all."""
    negative: int = 0
    """The handler rejects them."""
    unstable: int = 0
    """Fail at first and succeed when retried."""
    deleted: int = 0
    """Tombstones."""


def make_orders(count: int, mix: Mix, seed: int = 1) -> Iterator[tuple[bytes, bytes | None]]:
    """Generate (key, value) pairs, the same for the same seed, and count them in *mix*."""
    rng = random.Random(seed)  # noqa: S311 - nothing secret
    weights = list(accumulate(rank**-_SKEW for rank in range(1, CUSTOMERS + 1)))
    names = [f"customer-{number:04}" for number in range(CUSTOMERS)]
    rng.shuffle(names)  # so that busy keys do not share a partition because of their names
    for number in range(count):
        customer = rng.choices(names, cum_weights=weights)[0]
        mix.total += 1
        yield customer.encode(), _value(rng, number, customer, mix)


def _value(rng: random.Random, number: int, customer: str, mix: Mix) -> bytes | None:
    dice, cents = rng.random(), rng.randrange(100, 100_000)
    if dice < _POISON:
        mix.poison += 1
        return b"<order>this is not JSON</order>"
    dice -= _POISON
    if dice < _DELETED:
        mix.deleted += 1
        return None
    dice -= _DELETED
    if dice < _NEGATIVE:
        mix.negative += 1
        cents = -cents
    elif dice < _NEGATIVE + _UNSTABLE:
        mix.unstable += 1
        return orders.value.encode(Order(number, customer, cents, "unstable"))
    return orders.value.encode(Order(number, customer, cents))
