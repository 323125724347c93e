"""Payments grouped by a field of their values: one transfer per merchant.

$ laneway run groups:app --once
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laneway import App, Batch, GroupedBy, Json, Message, Record, Reject, Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST = 20  # payments that the bank accepts in one transfer


@dataclass
class Merchant:
    id: str
    closed: bool = False


@dataclass
class Payment:
    number: int
    cents: int
    merchant: Merchant


@dataclass
class Transfer:
    merchant: str
    cents: int
    payments: list[int]


class Transfers:
    """A handler kind of our own: an object with this one method, which must return every record."""

    def split(self, records: Sequence[Record[Payment]]) -> Iterator[Sequence[Record[Payment]]]:
        for group in GroupedBy("merchant.id").split(records):
            for first in range(0, len(group), MOST):
                yield group[first : first + MOST]


payments = Topic("payments", value=Json(Payment))
transfers = Topic("transfers", value=Json(Transfer))
app = App("groups")


# Collects up to 500 payments in a second and groups them. Each group is one call: that of a closed merchant is parked,
# and the others do not notice. Without the limit of 20, kind=GroupedBy("merchant.id") would be enough.
@app.custom_handler(payments, kind=Transfers(), size=500, within="1s", lanes=4)
def transfer(batch: Batch[Payment]) -> Message[Transfer]:
    merchant = batch.values[0].merchant
    if merchant.closed:
        raise Reject(f"{merchant.id} is closed")
    cents = sum(payment.cents for payment in batch.values)
    numbers = [payment.number for payment in batch.values]
    return transfers.message(Transfer(merchant.id, cents, numbers), key=merchant.id)


if __name__ == "__main__":
    app.run()
