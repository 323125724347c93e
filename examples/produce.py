"""Creates the topics of the examples and fills them.

$ python produce.py orders 1000
$ python produce.py readings 5000 --brokers 127.0.0.1:9092
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from laneway import Message, Topic
from laneway.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS = 4


def order(number: int) -> tuple[bytes, bytes]:
    """Every 50th order has a negative total, and every 60th is not an order."""
    customer = f"customer-{number % 100}"
    cents = -100 if number % 50 == 49 else 100 + number
    value = {"number": number, "customer": customer, "cents": cents}
    return customer.encode(), b"not JSON" if number % 60 == 59 else json.dumps(value).encode()


def booking(number: int) -> tuple[bytes, bytes]:
    value = {"number": number, "customer": f"customer-{number % 100}", "cents": 100 + number}
    return b"%d" % number, json.dumps(value).encode()


def reading(number: int) -> tuple[bytes, bytes]:
    sensor = f"sensor-{number % 40}"
    return sensor.encode(), json.dumps({"sensor": sensor, "value": number / 10}).encode()


def click(number: int) -> tuple[bytes, bytes]:
    return f"/page/{number % 7}".encode(), b""


def payment(number: int) -> tuple[bytes, bytes]:
    """Every ninth payment is for a merchant that has closed."""
    merchant = {"id": f"merchant-{number % 9}", "closed": number % 9 == 8}
    value = {"number": number, "cents": 100 + number, "merchant": merchant}
    return f"card-{number % 40}".encode(), json.dumps(value).encode()


def movement(number: int) -> tuple[bytes, bytes]:
    """A ring of accounts gives each other one cent; every tenth movement is written twice."""
    source = (number - (number % 10 == 9)) % 50
    value = {"id": f"m-{number - (number % 10 == 9)}", "source": f"account-{source}", "cents": 1}
    return f"account-{source}".encode(), json.dumps({**value, "target": f"account-{(source + 1) % 50}"}).encode()


KINDS: dict[str, Callable[[int], tuple[bytes, bytes]]] = {
    "orders": order,
    "bookings": booking,
    "readings": reading,
    "clicks": click,
    "payments": payment,
    "movements": movement,
}
OUTPUTS = {"orders": ("receipts",), "bookings": ("invoices", "audit"), "payments": ("transfers",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("topic", choices=KINDS)
    parser.add_argument("count", type=int, nargs="?", default=1_000)
    parser.add_argument("--brokers", default="127.0.0.1:9092")
    given = parser.parse_args()
    create([given.topic, *OUTPUTS.get(given.topic, ())], given.brokers)
    topic, make = Topic(given.topic), KINDS[given.topic]

    def message(number: int) -> Message[bytes]:
        key, value = make(number)
        return topic.message(value, key=key, headers=[("correlation-id", b"%s-%d" % (given.topic.encode(), number))])

    with Producer(brokers=given.brokers) as producer:
        written = producer.produce_all(map(message, range(given.count))).result()
    print(f"produced {written} records to {given.topic}")


def create(topics: list[str], brokers: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    there = admin.list_topics(timeout=10).topics
    missing = [NewTopic(name, PARTITIONS) for name in topics if name not in there]
    for name, created in admin.create_topics(missing).items() if missing else ():
        created.result()
        print(f"created topic {name} with {PARTITIONS} partitions")


if __name__ == "__main__":
    main()
