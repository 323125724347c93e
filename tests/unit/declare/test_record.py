"""The values a user's functions take and return."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given

from laneway import Batch, Json, Message, Topic
from laneway._declare.record import as_key, as_messages
from laneway.errors import CodecError, DeclarationError, Reject, RetryAfter, Skip
from support.core import make_record

ORDERS = Topic("orders")


@pytest.mark.parametrize("name", ["a", "orders", "a.b_c-D9", "x" * 249, "...", "__consumer_offsets"])
def test_names_that_kafka_takes_are_taken(name):
    """Letters, digits, dots, underscores and hyphens, up to 249."""
    assert name == Topic(name).name


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "é", "a\n", "٣", "a:b"])
def test_names_that_kafka_refuses_are_refused(name):
    """The message says which characters may be used."""
    with pytest.raises(DeclarationError, match="is not a topic name: use 1 to 249 ASCII letters"):
        Topic(name)


def test_topics_are_equal_by_name_and_codec():
    """Two declarations of one topic are the same topic."""
    assert Topic("a") == Topic("a")
    assert Topic("a") != Topic("a", Json())
    assert len({Topic("a"), Topic("a")}) == 1


def test_null_and_empty_stay_apart():
    """No key and an empty key, no value and an empty value are different things."""
    assert ORDERS.record(None).key is None
    assert ORDERS.record(b"", key=b"").key == b""
    assert ORDERS.record(None).is_tombstone
    assert not ORDERS.record(b"").is_tombstone


@given(st.one_of(st.none(), st.binary(max_size=9)), st.one_of(st.none(), st.binary(max_size=9)))
def test_a_record_counts_the_bytes_of_key_and_value(key, value):
    """Size is what the buffer bound counts."""
    record = ORDERS.record(value, key=key)

    assert len(key or b"") + len(value or b"") == record.size
    assert value == record.raw


def test_a_record_for_a_test_is_encoded():
    """The raw bytes are what the codec makes of the value."""
    record = Topic("orders", Json()).record({"a": 1}, key="é", partition=2, offset=3, timestamp=4)

    assert record.raw == b'{"a":1}'
    assert record.key == "é".encode()
    assert (record.topic, record.partition, record.offset, record.timestamp) == ("orders", 2, 3, 4)
    assert record.attempt == 1


def test_time_is_aware():
    """The timestamp's milliseconds become a datetime in UTC."""
    assert make_record(timestamp=1_500).time == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)


def test_the_last_header_of_a_name_counts():
    """As in Kafka's own client; a null value and no header both read as None."""
    record = make_record(headers=[("a", b"1"), ("a", b"2"), ("b", None)])

    assert record.header("a") == b"2"
    assert record.header("b") is None
    assert record.header("c") is None


def test_records_are_equal_only_to_themselves():
    """Two records with the same content are two records."""
    assert make_record() != make_record()


def test_a_message_is_made_for_its_topic():
    """A text key becomes UTF-8, everything else stays."""
    expected = Message(ORDERS, b"v", b"k", [("h", b"1")], 3)
    assert expected == ORDERS.message(b"v", key="k", headers=[("h", b"1")], partition=3)


def test_a_batch_is_a_sequence_of_records():
    """Values and keys stand in the order of the records."""
    records = [make_record(0, b"a", b"1"), make_record(1, None, None)]
    batch = Batch(records)

    assert records == list(batch)
    assert len(batch) == 2
    assert batch.values == [b"1", None]
    assert batch.keys == [b"a", None]


def test_a_test_can_see_what_a_handler_marked():
    """Marks stand in the order in which they were made, and carry what was said."""
    first, second, third = records = [make_record(0), make_record(1), make_record(2)]
    batch = Batch(records)
    batch.retry(third, "busy", after="5s")
    batch.reject(first, "negative")
    batch.skip(second, "seen")

    assert [(record.offset, type(error), str(error)) for record, error in batch.fates] == [
        (2, RetryAfter, "busy"),
        (0, Reject, "negative"),
        (1, Skip, "seen"),
    ]
    assert batch.fates[0][1].delay == "5s"


def test_marks_need_no_reason():
    """Each has a text of its own, and a retry the usual pause."""
    batch = Batch([make_record()])
    for mark in (batch.reject, batch.retry, batch.skip):
        mark(batch.records[0])

    assert [str(error) for _, error in batch.fates] == [
        "rejected by the handler",
        "marked for a retry",
        "skipped by the handler",
    ]
    assert batch.fates[1][1].delay is None


def test_marks_belong_to_one_batch():
    """They are neither shared between batches nor part of what makes two batches equal."""
    records = [make_record()]
    one, other = Batch(records), Batch(records)
    one.skip(records[0])

    assert other.fates == []
    assert one == other


@pytest.mark.parametrize(
    ("key", "expected"), [(None, None), ("", b""), (b"", b""), ("é", b"\xc3\xa9"), (b"\xff", b"\xff")]
)
def test_keys_are_bytes(key, expected):
    """Text is UTF-8; no key stays no key."""
    assert expected == as_key(key)


def test_messages_come_alone_or_in_a_list():
    """One message, a list or a tuple of them are what a handler may return."""
    message = ORDERS.message(b"")

    assert list(as_messages(message, "h")) == [message]
    assert list(as_messages([message, message], "h")) == [message, message]
    assert list(as_messages((), "h")) == []


@pytest.mark.parametrize("answer", [b"bytes", 0, False, "text", {"a": 1}, [b"x"], [None], iter(())])
def test_other_answers_are_refused(answer):
    """The message names the handler and what may be returned."""
    with pytest.raises(
        DeclarationError, match=r"handler 'h' returned .*; return None, a Message or a list of Messages"
    ):
        as_messages(answer, "h")


def test_a_key_is_taken_from_the_value_and_encoded():
    """A message without a key of its own has the key of its value; bytes are taken as they are."""
    topic = Topic("orders", Json(dict), key=lambda order: order["id"], key_codec=Json(int))
    assert topic.message({"id": 42}).key == b"42"
    assert topic.message({"id": 42}, key=7).key == b"7"
    assert topic.message({"id": 42}, key=b"raw").key == b"raw"
    assert topic.message({"id": 42}, key=None).key is None
    assert topic.record({"id": 42}).key == b"42"
    assert topic.key_of(topic.record({"id": 42})) == 42
    assert topic.key_of(topic.record({"id": 42}, key=None)) is None


def test_a_tombstone_needs_a_key_where_the_value_has_it():
    """Without a value there is no key, and a tombstone without a key deletes nothing."""
    topic = Topic("orders", Json(dict), key=lambda order: order["id"])
    with pytest.raises(DeclarationError, match="write message"):
        topic.message(None)
    assert topic.message(None, key="42").key == b"42"


def test_a_key_of_another_type_needs_a_codec():
    """A number is not encoded by guessing."""
    topic = Topic("orders", Json(dict), key=lambda order: order["id"])
    with pytest.raises(CodecError, match="key_codec"):
        topic.message({"id": 42})


def test_a_message_can_be_pickled_when_its_topic_has_a_lambda():
    """Messages travel between processes; their keys are known by then."""
    topic = Topic("orders", Json(dict), key=lambda order: order["id"])
    found = pickle.loads(pickle.dumps(topic.message({"id": "a"})))  # noqa: S301 - its own
    assert (found.topic.name, found.key, found.value) == ("orders", b"a", {"id": "a"})
