"""A replayed record is on its topic as it was, and the others stay open exactly once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.errors_scene import NOON, Row, with_errors

pytestmark = pytest.mark.broker

ODD = [
    Row(None, None),
    Row(b"", b""),
    Row(None, b"v"),
    Row(b"k", None),
    Row(b"\x00\xff", bytes(range(256)), (("a", b"1"), ("a", b"1"), ("a", None), ("b", b"\xff\x00"), ("", b""))),
    Row(b"k", b"x" * 900_000, (("h", b"y" * 10_000),), NOON - 10**9),
    Row(b"old", b"v", (), 1),
]


def test_every_byte_comes_back(scene):
    """Null and empty keys and values, repeated, binary and null headers, timestamps; of ours only the count."""
    scene.park(ODD, partition=1)
    done = scene.errors("replay", "--yes", "--rate", "0")

    assert (done.code, done.err) == (0, "")
    assert f"7 records replayed to {scene.topic}" in done.out
    assert scene.source() == [row._replace(headers=with_errors(row.headers)) for row in ODD]
    assert {record.partition for record in scene.read(scene.topic)} == {1}
    assert (scene.open(), scene.committed()) == ([], {1: 7})


def test_what_is_replayed_once_is_not_replayed_again(scene):
    """A second replay finds nothing."""
    scene.park(ODD[:3])
    scene.errors("replay", "--yes")
    done = scene.errors("replay", "--yes")

    assert (done.code, len(scene.source())) == (0, 3)
    assert "there is nothing to replay" in done.out
    assert f"{scene.error_topic}: no open records; --all" in scene.errors("list").out


def test_a_middle_selection_keeps_the_others_open_once(scene):
    """Those before the last chosen record move to the end of their partition, to the last byte the same."""
    rows = [Row(f"k{number}".encode(), b"v" * number, (("n", None), ("n", b"\xff"))) for number in range(10)]
    scene.park(rows)
    scene.park([Row(b"other", b"v")], partition=1)
    before = scene.open()
    done = scene.errors("replay", "--yes", "--at", "0:3", "--at", "0:6")

    assert done.code == 0
    assert "2 records replayed" in done.out
    assert "5 records kept open" in done.out
    assert [row.key for row in scene.source()] == [b"k3", b"k6"]
    assert scene.open() == [*before[7:10], *(before[n] for n in (0, 1, 2, 4, 5)), before[10]]
    assert (scene.committed(), scene.ends(scene.error_topic)) == ({0: 7}, {0: 15, 1: 1})


def test_a_limit_keeps_to_the_rule(scene):
    """The first so many are replayed; what was passed over is kept, what lies behind is left."""
    scene.park([Row(key, b"v") for key in (b"a", b"b", b"a", b"b", b"a")])
    done = scene.errors("replay", "--yes", "--key", "b", "--limit", "1")

    assert done.code == 0
    assert [row.key for row in scene.source()] == [b"b"]
    assert [row.key for row in scene.open()] == [b"a", b"b", b"a", b"a"]


def test_a_replayed_record_remembers_how_often_it_was_parked(scene):
    """The next copy can count on."""
    scene.put(Row(b"k", b"v", (("laneway-errors", b"4"), ("laneway-app", scene.app.encode()))))
    scene.errors("replay", "--yes")

    assert scene.source() == [Row(b"k", b"v", (("laneway-errors", b"4"),))]


def test_a_reference_is_named_and_not_replayed(scene):
    """A copy without its value would delete what it stands for."""
    scene.put(Row(b"big", None, (("laneway-reduced", b"value"),)))
    scene.park([Row(b"k", b"v")])
    done = scene.errors("replay", "--yes")

    assert done.code == 0
    assert "left alone, the value was too large to be copied: 1 record (0:0)" in done.out
    assert ([row.key for row in scene.source()], [row.key for row in scene.open()]) == ([b"k"], [b"big"])


def test_a_person_may_send_them_elsewhere(scene):
    """Another topic gets them; one that is not there is refused, and not created."""
    elsewhere = f"{scene.topic}.copy"
    scene.park([Row(b"k", b"v")])
    done = scene.errors("replay", "--yes", "--to", elsewhere)
    assert done.code == 2
    assert f"there is no topic {elsewhere} to replay to" in done.err
    assert elsewhere not in scene.cluster.admin.topics()

    assert scene.errors("replay", "--yes", "--to", scene.error_topic).code == 2
    scene.create(elsewhere)
    assert scene.errors("replay", "--yes", "--to", elsewhere).code == 0
    assert (scene.source(), len(scene.read(elsewhere)), scene.open()) == ([], 1, [])


def test_a_dry_run_writes_nothing(scene):
    """It says what would happen; topics and offsets are as before."""
    scene.park([Row(b"a", b"v"), Row(b"b", b"v")])
    before = (scene.open(), scene.ends(scene.error_topic), scene.ends(scene.topic), scene.committed())
    done = scene.errors("replay", "--dry-run", "--key", "b")

    assert done.code == 0
    assert f"would replay 1 record to {scene.topic}" in done.out
    assert "1 record before them will be re-appended to the error topic and stay open" in done.out
    assert scene.errors("drop", "--dry-run").code == 0
    assert before == (scene.open(), scene.ends(scene.error_topic), scene.ends(scene.topic), scene.committed())


def test_without_a_terminal_or_yes_nothing_is_done(scene):
    """Exit code 2, and everything is as before."""
    scene.park([Row(b"a", b"v")])
    assert [scene.errors(verb).code for verb in ("replay", "drop")] == [2, 2]
    assert (len(scene.open()), scene.source(), scene.committed()) == (1, [], {})


@pytest.mark.parametrize(("answer", "code", "replayed"), [("n", 1, 0), ("y", 0, 1)])
def test_a_person_at_a_terminal_is_asked(scene, answer, code, replayed):
    """What is about to happen is said first; no means that nothing is done."""
    scene.park([Row(b"a", b"v")])
    done = scene.at_terminal("replay", answer=answer)

    assert (done.code, len(scene.source()), len(scene.open())) == (code, replayed, 1 - replayed)
    assert f"about to replay 1 record to {scene.topic}" in done.out
    assert "Continue? [y/N]" in done.out


def test_a_drop_is_done_with_records_without_sending_them(scene):
    """The others stay open once, and the dropped ones are shown by --all."""
    scene.park([Row(key, b"v") for key in (b"a", b"b", b"a", b"c")])
    done = scene.errors("drop", "--yes", "--key", "a")

    assert done.code == 0
    assert "2 records dropped, 1 record kept open" in done.out
    assert (scene.source(), [row.key for row in scene.open()]) == ([], [b"c", b"b"])
    assert scene.errors("list", "--all", "--key", "a").out.count("done") == 2


def test_the_rate_is_kept(scene):
    """Twenty records at ten a second take about two seconds, and all of them arrive."""
    import time

    scene.park([Row(b"k%d" % number, b"v") for number in range(20)])
    began = time.monotonic()
    assert scene.errors("replay", "--yes", "--rate", "10").code == 0

    assert 1.8 < time.monotonic() - began < 30
    assert len(scene.source()) == 20


def test_handlers_of_several_topics_get_their_own_records_back(scene):
    """Each error topic goes to its source; --topic chooses one."""
    second = f"{scene.topic}.2"
    scene.create(second)
    scene.declare(
        "from laneway import App, Topic\n"
        f"app = App({scene.app!r})\n"
        f"@app.handler(Topic({scene.topic!r}))\ndef charge(record): ...\n"
        f"@app.handler(Topic({second!r}))\ndef refund(record): ...\n"
    )
    errors = f"{second}.{scene.app}.error"
    scene.create(errors)
    scene.park([Row(b"one", b"v")])
    scene.put(Row(b"two", b"v"), topic=errors)

    assert scene.errors("show", "0:0").code == 2
    assert "two" in scene.errors("show", "0:0", "--topic", errors).out
    assert scene.errors("replay", "--yes", "--topic", errors).code == 0
    assert (scene.source(), [record.key for record in scene.read(second)]) == ([], [b"two"])
    assert scene.errors("replay", "--yes").code == 0
    assert [row.key for row in scene.source()] == [b"one"]


def test_records_older_than_their_topic_keeps_are_warned_of(scene):
    """Brokers remove records by their own timestamps, so an old one may be gone before its handler sees it."""
    short = f"{scene.topic}.short"
    scene.create(short, retention_ms="86400000")
    scene.park([Row(b"k", b"v")])
    done = scene.errors("replay", "--dry-run", "--to", short)
    assert f"warning: some of them are older than the 1d that {short} keeps records" in done.err
    assert scene.errors("replay", "--dry-run").err == ""

    import time

    scene.park([Row(b"new", b"v", (), int(time.time() * 1000))], partition=1)
    assert scene.errors("replay", "--dry-run", "--to", short, "--key", "new").err == ""


def test_retention_is_reported(scene):
    """No limit is None; a topic that is only compacted keeps its records too."""
    short, compacted = f"{scene.topic}.short", f"{scene.topic}.compacted"
    scene.create(short, retention_ms="86400000")
    scene.create(compacted, retention_ms="86400000", cleanup_policy="compact")
    admin = scene.cluster.admin

    assert (admin.retention(short), admin.retention(scene.topic)) == (timedelta(days=1), None)
    assert admin.retention(compacted) is None
