"""Payments grouped by a field of their values: one transfer for what a merchant is owed.

$ laneway run groups:app --once
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laneway import App, Batch, GroupedBy, Json, Message, Record, Reject, Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST = 20  # payments that the bank takes in one transfer


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
    """A handler kind of our own. It is an object with this one method, which must leave no record out."""

    def split(self, records: Sequence[Record[Payment]]) -> Iterator[Sequence[Record[Payment]]]:
        for group in GroupedBy("merchant.id").split(records):
            for first in range(0, len(group), MOST):
                yield group[first : first + MOST]


payments = Topic("payments", value=Json(Payment))
transfers = Topic("transfers", value=Json(Transfer))
app = App("groups")


# Payments are gathered, up to 500 in a second, and cut by the kind. Each group is a call of its own: that of a closed
# merchant is parked, the others are not touched by it. kind=GroupedBy("merchant.id") would do without the limit.
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
