"""The options that clients get, and the ones that are refused."""

from __future__ import annotations

import pytest

from laneway.errors import SettingsError
from laneway.settings import load
from laneway.settings._librdkafka import FORBIDDEN, MANAGED


def test_the_newer_group_protocol_leaves_times_and_assignment_to_the_broker():
    """The client refuses them together; with the classic protocol the assignment can be chosen."""
    chosen = load(overrides={"clusters.main.consumer.group_protocol": "consumer", "clusters.main.brokers": "a:1"})
    newer = chosen.cluster().consumer_options()
    assert newer["group.protocol"] == "consumer"
    assert not {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"} & set(newer)
    chosen = load(overrides={"clusters.main.consumer.assignment": "range", "clusters.main.brokers": "a:1"})
    eager = chosen.cluster().consumer_options()
    assert eager["partition.assignment.strategy"] == "range"


def test_consumers_get_safe_defaults():
    """Offsets are committed by laneway alone, and a lost position is an error, not a jump."""
    expected = {
        "bootstrap.servers": "127.0.0.1:9092",
        "client.id": "laneway",
        "security.protocol": "plaintext",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "isolation.level": "read_committed",
        "fetch.queue.backoff.ms": 2,
        "fetch.wait.max.ms": 10,
        "fetch.min.bytes": 1,
        "fetch.message.max.bytes": 1048576,
        "queued.max.messages.kbytes": 16384,
        "topic.metadata.refresh.interval.ms": 30000,
        "session.timeout.ms": 45000,
        "heartbeat.interval.ms": 3000,
        "max.poll.interval.ms": 300000,
    }
    assert expected == load().cluster().consumer_options()


def test_producers_get_safe_defaults():
    """Every message is written once, by all replicas, within thirty seconds."""
    expected = {
        "bootstrap.servers": "127.0.0.1:9092",
        "client.id": "laneway",
        "security.protocol": "plaintext",
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 5,
        "delivery.timeout.ms": 30000,
        "message.max.bytes": 67108864,
        "compression.type": "none",
        "queue.buffering.max.kbytes": 65536,
        "partitioner": "murmur2_random",
    }
    assert expected == load().cluster().producer_options()


@pytest.mark.parametrize(
    ("given", "most"),
    [({}, 2**26), ({"max_message_size": "1MiB"}, 2**20 + 2**16), ({"max_message_size": "64MiB"}, 2**26)],
)
def test_the_client_has_no_limit_of_its_own(given, most):
    """What could be read can be copied; a limit that is asked for leaves room for the headers of a copy."""
    settings = load(overrides={f"clusters.main.producer.{name}": value for name, value in given.items()})
    assert settings.cluster().producer_options()["message.max.bytes"] == most


def test_acks_of_the_leader_are_allowed_with_a_warning():
    """Weaker writes need the typed setting, turn idempotence off and are warned about."""
    settings = load(overrides={"clusters.main.producer.acks": "leader"})
    options = settings.cluster().producer_options()
    assert (options["acks"], options["enable.idempotence"]) == (1, False)
    assert [warning.key for warning in settings.warnings] == ["clusters.main.producer.acks"]


def test_raw_options_go_only_to_clients_that_know_them():
    """An option of producers does not make consumers complain, and the other way round."""
    client = {"socket.timeout.ms": 1, "batch.size": 2, "fetch.queue.backoff.ms": 3}
    cluster = load(overrides={"clusters.main.client": client}).cluster()
    assert {key: cluster.client_options()[key] for key in client if key in cluster.client_options()} == {
        "socket.timeout.ms": 1
    }
    consumer, producer = cluster.consumer_options(), cluster.producer_options()
    assert tuple(consumer.get(key) for key in client) == (1, None, 3)
    assert tuple(producer.get(key) for key in client) == (1, 2, None)


def test_tls_options(tmp_path):
    """Mutual TLS hands over the files, checks the broker and its name."""
    for name in ("ca.pem", "client.pem", "client.key"):
        (tmp_path / name).write_text(name)
    files = {"ca": str(tmp_path / "ca.pem"), "certificate": tmp_path / "client.pem", "key": tmp_path / "client.key"}
    security = {"protocol": "SSL", **files, "key_password": "k"}
    options = load(overrides={"clusters.main.security": security}).cluster().client_options()
    assert {
        "bootstrap.servers": "127.0.0.1:9092",
        "client.id": "laneway",
        "security.protocol": "ssl",
        "enable.ssl.certificate.verification": True,
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "client.pem"),
        "ssl.key.location": str(tmp_path / "client.key"),
        "ssl.key.password": "k",
    } == options


def test_several_authorities_become_one_text(tmp_path):
    """The client takes one file, so several authorities are joined."""
    for name in ("a.pem", "b.pem"):
        (tmp_path / name).write_text(name)
    security = {"protocol": "ssl", "ca": [str(tmp_path / "a.pem"), str(tmp_path / "b.pem")]}
    options = load(overrides={"clusters.main.security": security}).cluster().client_options()
    assert options["ssl.ca.pem"] == "a.pem\nb.pem"


def test_oauth_options():
    """OAUTHBEARER gets its tokens by OpenID Connect."""
    oauth = {"token_url": "https://login/token", "client_id": "app", "client_secret": "s", "scope": "kafka"}
    security = {"protocol": "sasl_ssl", "mechanism": "oauthbearer", "oauth": oauth}
    options = load(overrides={"clusters.main.security": security}).cluster().client_options()
    assert {key: value for key, value in options.items() if key.startswith("sasl.")} == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login/token",
        "sasl.oauthbearer.client.id": "app",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.scope": "kafka",
    }


def refused(key, value="x"):
    with pytest.raises(SettingsError) as caught:
        load(overrides={"clusters.main.client": {key: value}})
    [problem] = caught.value.problems
    return problem


DANGEROUS = sorted(
    {
        *FORBIDDEN,
        "oauth_cb",
        "error_cb",
        "stats_cb",
        "rebalance_cb",
        "ssl.certificate.verify_cb",
        "open_cb",
        "sasl.login.callback.handler.class",
        "sasl.client.callback.handler.class",
        "listener.name.x.sasl.jaas.config",
        "java.security.auth.login.module",
        "config.providers.file.class",
    }
)


@pytest.mark.parametrize("key", DANGEROUS)
@pytest.mark.parametrize(
    "spell", [str, str.upper, str.title, " {} ".format, "\t{}".format, lambda key: key.replace(".", " . ")]
)
def test_options_that_run_code_are_forbidden(key, spell):
    """No spelling of an option that loads or runs code gets through; the key is named."""
    problem = refused(spell(key))
    assert problem.message.startswith("the option is forbidden: ")
    assert problem.fix == "remove it"


def test_nested_spelling_is_seen_through():
    """An option written as nested tables is the same option."""
    problem = refused("plugin", {"library": {"paths": "x.so"}})
    assert problem.key == "clusters.main.client.plugin.library.paths"
    assert problem.message.startswith("the option is forbidden")


@pytest.mark.parametrize("key", sorted(MANAGED))
@pytest.mark.parametrize("spell", [str, str.upper, " {}".format])
def test_options_that_laneway_sets_are_refused(key, spell):
    """An option with a typed setting, or one that would break a promise, is refused with the way out."""
    problem = refused(spell(key))
    assert problem.message.startswith("the option is managed by laneway: ")
    assert problem.fix.startswith(("use ", "remove it", "change the name"))


@pytest.mark.parametrize("key", ["ssl.cipher.suites", "sasl.username", "security.protocol", "ssl.ca.location"])
def test_login_and_tls_have_their_own_settings(key):
    """All options of login and TLS point to the typed settings."""
    assert refused(key).fix == "use the 'security' settings"


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("socket.timeout.mss", "did you mean 'socket.timeout.ms'?"),
        ("Socket.Timeout.Ms", "did you mean 'socket.timeout.ms'?"),
        ("linger.mss", "use producer.linger"),
        ("quite.something.else", "see the librdkafka CONFIGURATION page"),
    ],
)
def test_unknown_options_get_a_hint(key, fix):
    """A misspelled option is not passed on; the close one is named."""
    assert fix == refused(key).fix


@pytest.mark.parametrize(
    "key",
    ["spark.jaas.x", "spark.kafka.sasl.jaas.config", "SPARK.MASTER", "spark.Speculation", "spark.python.use.daemon"],
)
def test_spark_options_that_break_promises_are_refused(key):
    """Spark's side has the same gate, in any case."""
    with pytest.raises(SettingsError):
        load(overrides={"spark.conf": {key: "true"}})


def test_speculation_may_be_turned_off():
    """The safe value of a guarded Spark option is fine."""
    assert load(overrides={"spark.conf": {"spark.speculation": False}}).spark.conf == {"spark.speculation": "false"}
