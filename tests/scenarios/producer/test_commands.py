"""`laneway produce`, `laneway consume` and `laneway topics` on a real broker."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import uuid

import pytest

from laneway.cli import main
from support.waiting import eventually

pytestmark = pytest.mark.broker


@pytest.fixture
def laneway(place, tmp_path, monkeypatch, capsys):
    """Runs the command in this process; returns exit code, output and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for variable in ("LANEWAY_CONFIG", "LANEWAY_PROFILE", "LANEWAY_DEBUG"):
        monkeypatch.delenv(variable, raising=False)

    def run(*words, stdin=b"", brokers=True):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        end = ["--brokers", place.cluster.bootstrap] if brokers else []
        monkeypatch.setattr(sys, "argv", ["laneway", *words, *end])
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return ended.value.code, written.out, " ".join(written.err.split())

    return run


def test_lines_of_stdin_become_messages(place, laneway):
    """Each line is a value; key, headers and partition are those of the options."""
    topic = place.topic(2)
    words = ("--key", "k", "--header", "a=1", "--header", "b=x=y", "--partition", "1")
    code, out, _err = laneway("produce", topic.name, *words, stdin=b"one\n\ntwo\r\n")
    assert (code, out) == (0, f"produced 2 messages to {topic.name}\n")
    found = [(record.raw, record.key, record.partition, list(record.headers)) for record in place.records(topic)]
    headers = [("a", b"1"), ("b", b"x=y")]
    assert found == [(b"one", b"k", 1, headers), (b"two", b"k", 1, headers)]


def test_json_lines_of_a_file_have_their_keys_in_a_field(place, laneway, tmp_path):
    """The key is a field of the value; `--rate` holds the messages back."""
    topic = place.topic(1)
    lines = [{"customer": {"id": number if number % 2 else f"c{number}"}} for number in range(20)]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    began = time.monotonic()
    code, _out, _err = laneway(
        "produce", topic.name, "--file", "in.jsonl", "--format", "json", "--key-field", "customer.id", "--rate", "20"
    )
    assert code == 0
    assert time.monotonic() - began > 0.8
    records = place.records(topic)
    assert [json.loads(record.raw) for record in records] == lines
    assert [record.key for record in records[:3]] == [b"c0", b"1", b"c2"]


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["--format", "json"], 1, "line 2: not JSON"),
        (["--key-field", "b"], 1, "line 1: it has no field b"),
        (["--format", "record"], 1, "line 1: it is no record"),
        (["--header", "x"], 2, "--header 'x' is not NAME=VALUE"),
        (["--key", "hex:x"], 2, "pairs of hexadecimal digits"),
        (["--key", "a", "--key-field", "b"], 2, "not both"),
        (["--file", "absent"], 2, "absent cannot be read"),
        (["--cluster", "west"], 2, "there is no cluster 'west'"),
    ],
)
def test_a_wrong_line_or_option_is_named(place, laneway, words, code, part):
    """One clear line, no traceback; what came before a wrong line is written."""
    topic = place.topic(1)
    found, out, err = laneway("produce", topic.name, *words, stdin=b'{"a": 1}\nno \x1b[31mjson\n')
    assert (found, out) == (code, "")
    assert part in err
    assert "Traceback" not in err
    assert "\x1b" not in err
    assert len(place.records(topic)) == (1 if "json" in words else 0)


def test_a_configured_topic_has_its_name_and_cluster(place, laneway, tmp_path):
    """`produce` and `consume` take the name that code has."""
    topic = place.topic(1)
    (tmp_path / "laneway.yaml").write_text(
        f"default: {{clusters: {{main: {{brokers: '{place.cluster.bootstrap}'}}}}, "
        f"topics: {{orders: {{name: {topic.name}}}}}}}\n"
    )
    assert laneway("produce", "orders", stdin=b"one\n", brokers=False)[0] == 0
    code, out, err = laneway("consume", "orders", brokers=False)
    assert code == 0
    assert "    one" in out
    assert f"1 record of {topic.name}" in err


def test_records_go_through_consume_and_produce_unchanged(place, laneway):
    """What `consume --json` prints, `produce --format record` writes: nulls, bytes, headers and timestamps too."""
    source, target = place.topic(1), place.topic(1)
    rows = [
        source.message(
            b"\xff\x00", key=b"\xfe", headers=[("h", None), ("h", b"\xff"), ("t", b"x")], timestamp=1_000_000
        ),
        source.message(None, key="gone"),
        source.message(b"", key=None),
        source.message('{"a": "\u00fc\x1b"}'.encode(), key=b""),
    ]
    from laneway.producer import Producer

    with Producer(place.settings()) as producer:
        assert producer.produce_all(rows).result(30) == 4
    code, out, _err = laneway("consume", source.name, "--json")
    assert code == 0
    assert "\x1b" not in out
    assert len(out.splitlines()) == 4
    assert laneway("produce", target.name, "--format", "record", stdin=out.encode())[0] == 0
    before, after = place.records(source), place.records(target)
    for one, other in zip(before, after, strict=True):
        assert (one.key, one.raw, list(one.headers), one.timestamp) == (
            other.key, other.raw, list(other.headers), other.timestamp,
        )  # fmt: skip


def test_consume_filters_and_limits(place, laneway):
    """By key, text, field and header; from an offset, a time or the end; at most so many."""
    topic = place.topic(1)
    lines = "".join(json.dumps({"n": n, "who": {"id": f"c{n % 3}"}}) + "\n" for n in range(9))
    laneway("produce", topic.name, "--key-field", "who.id", "--header", "a=1", stdin=lines.encode())
    place_of = {
        "key": ("--key", "c1"),
        "where": ("--where", "who.id=c1", "--where", "n=4"),
        "contains": ("--contains", '"n": 7'),
        "header": ("--header", "a=1", "--max", "2"),
        "none": ("--header", "a=2"),
        "offset": ("--from", "7"),
        "age": ("--from", "1h"),
        "time": ("--from", "2099-01-01"),
        "end": ("--from", "latest"),
    }
    found = {}
    for name, words in place_of.items():
        code, out, _err = laneway("consume", topic.name, "--json", *words)
        assert code == 0
        found[name] = [json.loads(line)["offset"] for line in out.splitlines()]
    assert found == {
        "key": [1, 4, 7],
        "where": [4],
        "contains": [7],
        "header": [0, 1],
        "none": [],
        "offset": [7, 8],
        "age": list(range(9)),
        "time": [],
        "end": [],
    }


def test_consume_shows_records_for_a_reader(place, laneway, tmp_path):
    """JSON has indents, values are decoded by the codec of an app, and control characters are escaped."""
    topic = place.topic(1)
    name = f"app{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(
        "import zlib\nfrom laneway import App, Topic\n"
        "class Packed:\n"
        "    def encode(self, value): return zlib.compress(value.encode())\n"
        "    def decode(self, data): return zlib.decompress(data).decode()\n"
        f"app = App('shop')\n@app.handler(Topic({topic.name!r}, Packed()))\ndef handle(record): ...\n"
    )
    import zlib

    from laneway.producer import Producer

    with Producer(place.settings()) as producer:
        evil = topic.message(zlib.compress(b"hello"), key="\x1b[2J", headers=[("\x1b", b"\x1b")])
        producer.produce_all([evil, topic.message(b'{"a":1}')]).result(30)
    code, out, err = laneway("consume", topic.name, "--app", f"{name}:app")
    assert code == 0
    assert '"hello"' in out
    assert '      "a": 1' in out
    assert "\x1b" not in out + err
    assert "cannot be decoded" in err
    assert laneway("consume", topic.name, "--partition", "5")[0] == 2
    assert laneway("consume", topic.name, "--from", "soon")[0] == 2


def test_consume_follows_until_it_is_interrupted(place):
    """New records, also of new partitions, appear; Ctrl-C is a clean end."""
    topic = place.topic(1)
    words = ["consume", topic.name, "--follow", "--from", "latest", "--json", "--brokers", place.cluster.bootstrap]
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "laneway.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        from laneway.producer import Producer

        with Producer(place.settings()) as producer:
            sent = 0

            def appears():
                nonlocal sent
                producer.produce(topic.message(b"%d" % sent)).result(30)
                sent += 1
                import select

                return select.select([process.stdout], [], [], 0.2)[0]

            eventually(appears, timeout=60, why="a first record")
            place.cluster.admin.grow(topic.name, 2)
            eventually(lambda: len(place.cluster.admin.partitions(topic.name)) == 2, timeout=30)

            def grown():
                try:
                    return producer.produce(topic.message(b"new", partition=1)).result(30)
                except Exception:  # noqa: BLE001 - the client does not know the partition yet
                    return None

            eventually(grown, timeout=60, why="a message in the new partition")
        line = process.stdout.readline()
        while json.loads(line)["partition"] != 1:
            line = process.stdout.readline()
        assert json.loads(line)["value"] == {"text": "new"}
        process.send_signal(2)
        assert process.wait(30) == 0


def test_topics_are_created_listed_described_and_deleted(place, laneway):
    """Each step is seen by the next; what exists or is missing is an error with a hint."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    code, out, _err = laneway("topics", "create", name, "--partitions", "3", "--option", "retention.ms=60000")
    assert (code, out) == (0, f"created topic {name} with 3 partitions\n")
    assert laneway("topics", "create", name)[0] == 1
    code, out, _err = laneway("topics", "list", "--json")
    assert {"topic": name, "partitions": 3} in json.loads(out)
    assert laneway("produce", name, stdin=b"a\nb\n")[0] == 0
    code, out, _err = eventually(lambda: laneway("topics", "describe", name, "--json"))
    found = json.loads(out)
    assert (found["config"], found["trouble"]) == ({"retention.ms": "60000"}, "")
    assert sum(part["end"] - part["start"] for part in found["partitions"]) == 2
    assert "at most 2 records" in laneway("topics", "describe", name)[1]
    assert laneway("topics", "delete", name, "--yes")[1] == f"deleted topic {name}\n"
    eventually(lambda: name not in place.cluster.admin.topics(), timeout=30)
    code, _out, err = laneway("topics", "describe", name)
    assert code == 1
    assert f"there is no topic '{name}'" in err
    assert laneway("topics", "create", "a b")[0] == 2
