"""FakeKafka as a store, the plugin, and the examples of the room and its page."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from laneway import Json, Topic
from laneway.errors import AdminError, CodecError, ProduceError
from laneway.testing import FakeKafka

ORDERS = Topic("orders", value=Json(dict))
PAGE = Path(__file__).parents[3] / "docs" / "testing.md"


def test_a_key_always_goes_to_one_partition_and_no_key_to_each_in_turn():
    """Same key same partition, empty keys too; records without a key go round."""
    kafka = FakeKafka(partitions=3)
    for key in ("a", "b", ""):
        kafka.produce(*[ORDERS.message({}, key=key) for _ in range(5)])
        records = [record for record in kafka.records(ORDERS) if record.key == key.encode()]
        assert len({record.partition for record in records}) == 1
        assert [record.offset for record in records] == list(range(records[0].offset, records[0].offset + 5))
    spread = [kafka.produce(ORDERS.message({})).partition for _ in range(6)]
    assert sorted(spread) == [0, 0, 1, 1, 2, 2]


def test_records_are_listed_in_the_order_of_the_writes():
    """Values are decoded for a Topic and raw for a name; null and empty stay apart; timestamps are virtual."""
    kafka = FakeKafka()
    kafka.produce(*[ORDERS.message({"n": n}, key=f"k{n}", headers=[("h", None), ("h", b"")]) for n in range(9)])
    kafka.clock.advance("1s")
    last = kafka.produce_raw(ORDERS, None, key=b"")
    assert [record.value for record in kafka.records(ORDERS)] == [*({"n": n} for n in range(9)), None]
    assert kafka.records("orders")[0].value == b'{"n":0}'
    assert kafka.records(ORDERS)[0].headers == (("h", None), ("h", b""))
    assert last.timestamp - kafka.records(ORDERS)[0].timestamp == 1000
    assert (last.key, last.is_tombstone) == (b"", True)
    assert kafka.records("nowhere") == []
    assert list(kafka) == ["orders"]


def test_offsets_can_be_skipped_and_deleted():
    """A gap moves the end; a deletion moves the start and removes what lay before."""
    kafka = FakeKafka(partitions=1)
    kafka.produce(ORDERS.message({"n": 0}))
    kafka.skip_offsets(ORDERS, 0, 3)
    kafka.produce(ORDERS.message({"n": 1}))
    assert [record.offset for record in kafka.records(ORDERS)] == [0, 4]
    kafka.delete_records(ORDERS, 0, before=2)
    assert [record.offset for record in kafka.records(ORDERS)] == [4]
    assert kafka.ends(ORDERS) == {0: 5}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda kafka: kafka.create("orders"), AdminError),
        (lambda kafka: kafka.create("none", -1), AdminError),
        (lambda kafka: kafka.grow("orders", 4), AdminError),
        (lambda kafka: kafka.ends("nowhere"), AdminError),
        (lambda kafka: kafka.produce_raw("orders", b"", partition=9), AdminError),
        (lambda kafka: kafka.produce(), ProduceError),
        (lambda kafka: kafka.produce(ORDERS.message({1: object()})), CodecError),
    ],
)
def test_what_cannot_be_is_refused(wrong, error):
    """Requests that a real Kafka would refuse are refused with laneway's own errors."""
    kafka = FakeKafka()
    kafka.create(ORDERS)
    with pytest.raises(error):
        wrong(kafka)


def test_the_plugin_gives_each_test_a_kafka_of_its_own(tmp_path):
    """With the plugin a test asks for fake_kafka and gets an empty one, on the clock that fake_clock is."""
    (tmp_path / "test_it.py").write_text(
        "def test_one(fake_kafka, fake_clock):\n"
        "    assert fake_kafka.clock is fake_clock\n"
        "    fake_kafka.create('orders')\n"
        "def test_two(fake_kafka):\n"
        "    assert list(fake_kafka) == []\n"
    )
    # Only this plugin, by name: whether it is installed as an entry point does not matter here.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = ["-q", "-p", "laneway.testing.plugin", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    answer = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in answer.stdout, answer.stdout + answer.stderr


@pytest.mark.parametrize("module", ["_virtual_time", "_kafka", "_running"])
def test_the_examples_of_the_docstrings_run(module):
    """Every example in a docstring gives what it says."""
    result = doctest.testmod(importlib.import_module(f"laneway.testing.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_the_examples_of_the_page_run():
    """The page's code blocks run one after the other."""
    code = "\n\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
    exec(compile(code, str(PAGE), "exec"), {"__name__": "page"})  # noqa: S102 - our own page
