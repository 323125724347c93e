"""Any producer may write any header to an error topic: none of them redirects, hides or breaks anything."""

from __future__ import annotations

import json

import pytest

from support.errors_scene import Row, with_errors

pytestmark = pytest.mark.broker

HUGE = b"9" * 2**20
ESCAPES = b"\x1b[2J\x1b]0;title\x07\r[red]x[/red]\n\xe2\x80\xae"


def ours(**values):
    """Headers of ours; a list repeats one."""
    named = [(f"laneway-{name.replace('_', '-')}", value) for name, value in values.items()]
    return tuple((name, each) for name, value in named for each in (value if isinstance(value, list) else [value]))


def hostile(secret):
    return [
        ours(origin_topic=secret, origin_partition=b"0"),
        ours(origin_topic=[secret, secret]),
        ours(origin_topic=b"../../etc", origin_partition=b"-1", origin_offset=b"1" + b"0" * 30),
        ours(attempts=b"1" + b"0" * 30, errors=b"1" + b"0" * 30, parked_at=b"1" + b"0" * 30),
        ours(attempts=b"NaN", errors=b"-1", parked_at=b"NaN", origin_partition=b"99999"),
        ours(attempts=[b"1", b"2"], errors=[b"1", b"2"], handler=[b"a", b"b"], error_type=[b"a", b"b"]),
        ours(attempts=None, errors=None, error_type=None, error_message=None, error_trace=None, handler=None),
        ours(error_type=ESCAPES, error_message=ESCAPES, error_trace=ESCAPES, handler=ESCAPES, app=ESCAPES),
        ours(error_message=b"\xff\xfe\x00", error_trace=b"\xff" * 1_000),
        ours(reduced=b"nothing", odd=b"1"),
    ]


def test_no_header_redirects_a_replay(scene):
    """Every record goes to the app's own topic, and the topic that a header names gets none."""
    secret = f"{scene.topic}.secret"
    scene.create(secret)
    headers = hostile(secret.encode())
    for number, each in enumerate(headers):
        scene.put(Row(b"k%d" % number, b"v", (("own", b"1"), *each)))
    done = scene.errors("replay", "--yes", "--rate", "0")

    assert (done.code, done.err) == (0, "")
    counts = [1, 1, 1, 1_000_000, 1, 1, 1, 1, 1, 1]
    assert sorted(scene.source()) == [
        Row(b"k%d" % number, b"v", with_errors((("own", b"1"),), count)) for number, count in enumerate(counts)
    ]
    assert (scene.read(secret), scene.open()) == ([], [])


def test_no_header_breaks_a_list_or_a_page(scene):
    """They are shown as unknown, and nothing that a terminal acts on comes out."""
    headers = hostile(b"secret")
    for each in headers:
        scene.put(Row(ESCAPES, ESCAPES, (*each, ("own" + "\x1b", ESCAPES))))
    outputs = [scene.errors("list"), scene.errors("list", "--by-type"), scene.errors("list", "--json")]
    outputs += [scene.errors("show", f"0:{number}") for number in range(len(headers))]

    assert [done.code for done in outputs] == [0] * len(outputs)
    assert {done.err for done in outputs} == {""}
    assert [line for done in outputs for line in done.out.splitlines() if not line.isprintable()] == []
    assert "[red]x[/red]" in outputs[0].out
    told = [json.loads(line) for line in outputs[2].out.splitlines()]
    assert [each["attempts"] for each in told] == [None] * len(headers)
    assert [each["errors"] for each in told][3:7] == [1_000_000, None, None, None]


def test_a_header_of_a_mebibyte_is_bounded(scene):
    """It is cut where it is shown, and copied in full where a record is kept."""
    scene.cluster.admin.delete(scene.error_topic)
    scene.create(scene.error_topic, max_message_bytes="4000000")
    from confluent_kafka import Producer

    producer = Producer({**scene.options, "message.max.bytes": 4_000_000})
    headers = [("laneway-attempts", HUGE), ("laneway-error-message", HUGE), ("own", b"1")]
    for key in (b"huge", b"small"):
        producer.produce(scene.error_topic, b"v", key, headers=headers if key == b"huge" else [], partition=0)
    assert producer.flush(20) == 0
    (scene.folder / "laneway.yaml").write_text(
        f"default:\n  clusters:\n    main:\n      brokers: {scene.cluster.bootstrap}\n"
        "      producer: {max_message_size: 4MB}\n"
    )
    before = scene.open()

    assert len(scene.errors("list").out) < 5_000
    assert len(scene.errors("show", "0:0").out) < 10_000
    assert scene.errors("replay", "--yes", "--key", "small").code == 0
    assert scene.open() == before[:1]
    assert scene.errors("replay", "--yes").code == 0
    assert scene.source()[-1].headers == (("own", b"1"), ("laneway-errors", b"1"))


def test_a_record_of_another_app_is_left_alone(scene):
    """On a shared error topic its topic is not ours to write to; it stays open and is named."""
    scene.put(Row(b"theirs", b"v", ours(app=b"shipping", origin_topic=b"parcels")))
    scene.park([Row(b"ours", b"v")])
    done = scene.errors("replay", "--yes")

    assert done.code == 0
    assert "left alone, another app parked it: 1 record (0:0)" in done.out
    assert ([row.key for row in scene.source()], [row.key for row in scene.open()]) == ([b"ours"], [b"theirs"])
