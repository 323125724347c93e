"""The section `producers`: where messages for a topic go and how they are written."""

from __future__ import annotations

from datetime import timedelta

import pytest

from laneway import App, Topic
from laneway._runtime.configure import configured, producers_elsewhere
from laneway.errors import SettingsError
from laneway.settings import load, message_route, producer_of, producer_options

TWO = """
default:
  cluster: main
  clusters:
    main: {brokers: [a:9092], producer: {compression: lz4, timeout: 10s}}
    west: {brokers: [b:9092]}
"""


def settings_of(tmp_path, text):
    path = tmp_path / "laneway.yaml"
    path.write_text(TWO + text)
    return load(path)


def problems_of(tmp_path, text):
    with pytest.raises(SettingsError) as raised:
        settings_of(tmp_path, text)
    return [str(problem).replace(str(tmp_path), "") for problem in raised.value.problems]


def test_every_option_reaches_the_client(tmp_path):
    """What is given changes the option of librdkafka, and what is not given is as the cluster has it."""
    settings = settings_of(
        tmp_path,
        """
  producers:
    audit:
      topic: prod.audit
      acks: leader
      timeout: 5s
      max_message_size: 2MiB
      compression: zstd
      linger: 20ms
      buffer_size: 8MiB
""",
    )
    route = message_route(settings, "audit")
    assert (route.topic, route.cluster, route.client) == ("prod.audit", "main", "main/audit")
    options = producer_options(settings, route)
    assert options["acks"] == 1
    assert options["enable.idempotence"] is False
    assert options["delivery.timeout.ms"] == 5_000
    assert options["message.max.bytes"] == 2 * 2**20
    assert options["compression.type"] == "zstd"
    assert options["linger.ms"] == 20
    assert options["queue.buffering.max.kbytes"] == 8 * 1024
    assert options["partitioner"] == "murmur2_random"
    other = producer_options(settings, message_route(settings, "orders"))
    assert (other["compression.type"], other["delivery.timeout.ms"], other["acks"]) == ("lz4", 10_000, "all")


@pytest.mark.parametrize(
    ("written", "wire"),
    [("0", 0), ("1", 1), ("-1", "all"), ("all", "all"), ("none", 0), ("leader", 1), ("ALL", "all")],
)
def test_acks_takes_words_and_the_numbers_of_kafka(tmp_path, written, wire):
    """0 is none, 1 is leader, -1 is all; fewer than all give a warning, because messages can be lost."""
    settings = settings_of(tmp_path, f"  producers: {{audit: {{acks: {written}}}}}\n")
    assert producer_options(settings, message_route(settings, "audit"))["acks"] == wire
    assert bool(settings.warnings) is (wire != "all")


def test_a_cluster_never_writes_without_acknowledgements(tmp_path):
    """Copies of failed records go through the cluster's producer; without an answer they would be lost unseen."""
    (problem,) = problems_of(tmp_path, "  clusters.main.producer.acks: 0\n")
    assert "acks" in problem


@pytest.mark.parametrize("home", [None, "main", "west"])
def test_where_messages_go(tmp_path, home):
    """`producers` wins over `topics`; what neither names goes to the cluster of the handler."""
    settings = settings_of(
        tmp_path,
        """
  topics:
    both: {name: read.both, cluster: west}
    read: {name: read.only, cluster: west}
  producers:
    both: {topic: write.both, cluster: main}
    plain: {compression: none}
    away: {cluster: west}
""",
    )
    routes = {name: message_route(settings, name, home) for name in ("both", "read", "plain", "away", "other")}
    found = {name: (route.topic, route.client) for name, route in routes.items()}
    assert found == {
        "both": ("write.both", "main"),
        "read": ("read.only", "west"),
        "plain": ("plain", "main/plain"),
        "away": ("away", "west"),
        "other": ("other", home or "main"),
    }


def test_handlers_have_the_same_addresses_and_options(tmp_path):
    """A message that a handler returns is routed by the same rule, with the options of its own client."""
    settings = settings_of(
        tmp_path,
        "  producers: {audit: {cluster: west, compression: zstd}, bills: {cluster: west}, notes: {topic: n1}}\n",
    )
    app = App("shop")

    @app.handler(Topic("orders"))
    def handle(record):
        pass

    (route,) = configured(app, settings).routes
    assert route.addresses == {"audit": "audit@west/audit", "bills": "bills@west", "notes": "n1"}
    elsewhere = producers_elsewhere([route], settings)
    assert {name: options["compression.type"] for name, options in elsewhere.items()} == {
        "west": "none",
        "west/audit": "zstd",
    }


def test_problems_have_line_and_fix(tmp_path):
    """All mistakes are reported at once, each at its place."""
    problems = problems_of(
        tmp_path,
        """  producers:
    a: {cluster: east}
    b: {acks: 2}
    c: {timeout: 1ms}
    d: {max_message_size: 1GB}
    e: {compresion: lz4}
    f: {compression: rar}
    g: {topic: "a b"}
""",
    )
    keys = [problem.partition(": ")[0] + " " + problem.split(": ")[1] for problem in problems]
    assert keys == [
        "/laneway.yaml:8 producers.a.cluster",
        "/laneway.yaml:9 producers.b.acks",
        "/laneway.yaml:10 producers.c.timeout",
        "/laneway.yaml:11 producers.d.max_message_size",
        "/laneway.yaml:12 producers.e.compresion",
        "/laneway.yaml:13 producers.f.compression",
        "/laneway.yaml:14 producers.g.topic",
    ]
    assert all("Fix: " in problem for problem in problems)


def test_what_a_producer_does_not_set_is_the_clusters(tmp_path):
    """The merged settings of an entry start from those of its own cluster."""
    settings = settings_of(tmp_path, "  producers: {audit: {linger: 1ms}}\n")
    merged = producer_of(settings, message_route(settings, "audit"))
    assert (merged.linger, merged.compression, merged.timeout) == (
        timedelta(milliseconds=1),
        "lz4",
        timedelta(seconds=10),
    )
