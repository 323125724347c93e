"""Golden cases: a broken file, and the exact list of what is said about it."""

from __future__ import annotations

import pytest

from laneway.errors import SettingsError
from laneway.settings import load

MAIN = "default:\n  clusters:\n    main:\n      brokers: [h:9092]\n"  # four lines, so that cases begin in line 5
SECURITY = MAIN + "      security:\n"
HANDLER = "default:\n  handlers:\n    charge:\n"

# name: (text, [(line, key, part of "message. Fix: fix")])
CASES: dict[str, tuple[str, list[tuple[int | None, str, str]]]] = {
    "empty file": ("", [(1, "", "the file is empty. Fix: begin with 'default:'")]),
    "only a comment": ("# later\n", [(1, "", "the file is empty")]),
    "a list on top": ("- a\n- b\n", [(1, "", "not a table of profiles")]),
    "text on top": ("hello\n", [(1, "", "not a table of profiles")]),
    "no profiles": (
        "engine: direct\n",
        [(1, "engine", "this is a setting, but profiles are expected here. Fix: put it")],
    ),
    "profile missing": ("prod: {}\ntest: {}\n", [(None, "", "no profile 'default'; the profiles are: prod, test")]),
    "profile is text": ("default: yes\n", [(1, "default", "'yes' is given, but a profile is a table")]),
    "settings without a profile": (
        "brokers: 5\ndefault:\nlanes: 3\n",
        [(1, "brokers", "5 is given, but a profile is a table"), (3, "lanes", "put it below 'default:'")],
    ),
    "broken quotes": ('default:\n  engine: "spark\n', [(3, "", "this is not YAML")]),
    "tab": ("default:\n\tengine: spark\n", [(2, "", "this is not YAML")]),
    "two documents": ("default: {}\n---\nprod: {}\n", [(2, "", "more than one document")]),
    "duplicate key": (
        "default:\n  drain: 1s\n  engine: spark\n  drain: 2s\n",
        [(4, "drain", "given twice, in line 2 and in line 4. Fix: keep one of the two")],
    ),
    "duplicate profile": ("default: {}\nprod: {}\ndefault: {}\n", [(3, "default", "in line 1 and in line 3")]),
    "table as key": ("default:\n  ? [a, b]\n  : 1\n", [(2, "default", "a key must be plain text")]),
    "alias without anchor": ("default:\n  drain: *later\n", [(2, "drain", "an alias has no anchor before it")]),
    "merge of text": ("default:\n  <<: text\n", [(2, "default", "'<<' takes a table")]),
    "unknown top setting": (
        "default:\n  engin: spark\n",
        [(2, "engin", "no such setting. Fix: did you mean 'engine'?")],
    ),
    "unknown and far": (
        "default:\n  zzzzzz: 1\n",
        [(2, "zzzzzz", "Fix: use one of: cluster, clusters, create_topics, dedup, drain")],
    ),
    "unknown in a table": (
        MAIN + "      producer: {compresion: zstd}\n",
        [(5, "clusters.main.producer.compresion", "did you mean 'compression'?")],
    ),
    "name of another tool": (
        HANDLER + "      virtualPartitionCount: 3\n",
        [(4, "handlers.charge.virtualPartitionCount", "'lanes'?")],
    ),
    "duration without unit": (
        "default:\n  drain: 30\n",
        [(2, "drain", "30 has no unit. Fix: write for example '30s' or '30ms'")],
    ),
    "duration in words": (
        "default:\n  drain: soon\n",
        [(2, "drain", "'soon' is not a duration. Fix: write for example '100ms'")],
    ),
    "sexagesimal": ("default:\n  drain: 1:30\n", [(2, "drain", "'1:30' is not a duration")]),
    "negative duration": ("default:\n  drain: -5s\n", [(2, "drain", "'-5s' is not a duration")]),
    "duration too long": ("default:\n  drain: 99999999999999d\n", [(2, "drain", "is out of range")]),
    "bad size": (
        MAIN + "      producer: {max_message_size: 1XB}\n",
        [(5, "clusters.main.producer.max_message_size", "'1XB' is not a size. Fix: write for example '64KiB'")],
    ),
    "size out of range": (
        MAIN + "      producer: {max_message_size: 10b}\n",
        [(5, "clusters.main.producer.max_message_size", "from 1000b to 1GB")],
    ),
    "choice": (
        "default:\n  engine: sparkk\n",
        [(2, "engine", "'sparkk' is not one of spark, direct. Fix: write spark")],
    ),
    "choice is a boolean": (
        "default:\n  on_data_loss: true\n",
        [(2, "on_data_loss", "true is not one of fail, continue")],
    ),
    "yes for a boolean": (
        "default:\n  spark: {ui: yes}\n",
        [(2, "spark.ui", "'yes' is not true or false. Fix: write true")],
    ),
    "off for a boolean": (
        "default:\n  spark: {ui: off}\n",
        [(2, "spark.ui", "'off' is not true or false. Fix: write false")],
    ),
    "boolean for a text": (
        MAIN + "      client_id: true\n",
        [
            (
                5,
                "clusters.main.client_id",
                'true is a boolean in YAML, but text is expected. Fix: put it in quotes: "true"',
            )
        ],
    ),
    "number for a text": (MAIN + "      client_id: 12\n", [(5, "clusters.main.client_id", 'put it in quotes: "12"')]),
    "text for a table": (
        "default:\n  spark: local\n",
        [(2, "spark", "text is given, but a table of settings is expected")],
    ),
    "list for a table": ("default:\n  handlers: [charge]\n", [(2, "handlers", "a list is given, but a table")]),
    "no port": (
        "default:\n  clusters: {main: {brokers: kafka}}\n",
        [(2, "clusters.main.brokers[0]", "'kafka' has no port. Fix: write 'kafka:9092'")],
    ),
    "second broker": (
        "default:\n  clusters:\n    main:\n      brokers:\n        - a:1\n        - b:99999\n",
        [(6, "clusters.main.brokers[1]", "not a host and a port")],
    ),
    "broker is a number": (
        "default:\n  clusters: {main: {brokers: 9092}}\n",
        [(2, "clusters.main.brokers", "9092 is given, but a list is expected")],
    ),
    "broker with a password": (
        "default:\n  clusters: {main: {brokers: 'u:hunter2@h:1'}}\n",
        [(2, "clusters.main.brokers[0]", "a broker is only host and port")],
    ),
    "no brokers": (
        "default:\n  clusters:\n    main: {client_id: a}\n",
        [(3, "clusters.main.brokers", "the setting is missing. Fix: add 'brokers: ...'")],
    ),
    "empty brokers": (
        "default:\n  clusters: {main: {brokers: []}}\n",
        [(2, "clusters.main.brokers", "no broker in the list")],
    ),
    "cluster name": ("default:\n  clusters: {'a b': {brokers: 'h:1'}}\n", [(2, "clusters.a b", "'a b' is not a name")]),
    "no default cluster": (
        "default:\n  clusters:\n    a: {brokers: 'h:1'}\n    b: {brokers: 'h:2'}\n",
        [(2, "clusters", "2 clusters, and none is the default. Fix: add 'cluster: a'")],
    ),
    "unknown default cluster": (
        MAIN + "  cluster: other\n",
        [(5, "cluster", "no cluster 'other'. Fix: use one of: main")],
    ),
    "handler on unknown cluster": (
        HANDLER + "      cluster: other\n",
        [(4, "handlers.charge.cluster", "no cluster 'other'")],
    ),
    "topic on unknown cluster": (
        "default:\n  topics:\n    a: {name: x, cluster: other}\n",
        [(3, "topics.a.cluster", "no cluster 'other'")],
    ),
    "two topics, one name": (
        "default:\n  topics:\n    a: {name: x}\n    b: {name: x}\n",
        [(4, "topics.b.name", "the topic 'a' has the same name on the same cluster")],
    ),
    "topic without a name": ("default:\n  topics:\n    a: {}\n", [(3, "topics.a.name", "the setting is missing")]),
    "topic name": ("default:\n  topics: {a: {name: 'a/b'}}\n", [(2, "topics.a.name", "'a/b' is not a topic name")]),
    "lanes": (
        HANDLER + "      lanes: -1\n",
        [(4, "handlers.charge.lanes", "-1 is out of range. Fix: write a number from 0")],
    ),
    "lanes with a fraction": (
        HANDLER + "      lanes: 1.5\n",
        [(4, "handlers.charge.lanes", "1.5 is not a whole number")],
    ),
    "batch size": (
        HANDLER + "      size: 0\n",
        [(4, "handlers.charge.size", "0 is out of range. Fix: write a number from 1")],
    ),
    "attempts": (HANDLER + "      attempts: 0\n", [(4, "handlers.charge.attempts", "0 is out of range")]),
    "attempts is true": (
        HANDLER + "      attempts: true\n",
        [(4, "handlers.charge.attempts", "true is not a whole number")],
    ),
    "no time for a call": (
        HANDLER + "      timeout: 0s\n",
        [(4, "handlers.charge.timeout", "'0s' is out of range. Fix: write a duration from 1ms")],
    ),
    "backoff": (
        HANDLER + "      backoff: 20s\n      backoff_max: 10s\n",
        [(4, "handlers.charge.backoff", "longer than backoff_max (10s)")],
    ),
    "error topic is the topic": (
        HANDLER + "      error_topic: prod.orders\n  topics: {orders: {name: prod.orders}}\n",
        [(4, "handlers.charge.error_topic", "parked on the source topic of 'orders'")],
    ),
    "heartbeat": (
        MAIN + "      consumer: {heartbeat_interval: 45s}\n",
        [
            (
                5,
                "clusters.main.consumer.heartbeat_interval",
                "must be shorter than session_timeout (45s). Fix: write at most a third of it: 15s",
            )
        ],
    ),
    "poll interval": (
        MAIN + "      consumer: {max_poll_interval: 10s}\n",
        [(5, "clusters.main.consumer.max_poll_interval", "shorter than session_timeout")],
    ),
    "producer timeout": (
        MAIN + "      producer: {timeout: 5ms}\n",
        [(5, "clusters.main.producer.timeout", "still waits for linger (5ms)")],
    ),
    "producer buffer": (
        MAIN + "      producer: {buffer_size: 1KiB}\n",
        [(5, "clusters.main.producer.buffer_size", "Fix: make it at least 2MiB")],
    ),
    "producer message": (
        MAIN + "      producer: {max_message_size: 65MiB}\n",
        [(5, "clusters.main.producer.max_message_size", "does not fit into buffer_size")],
    ),
    "sasl without mechanism": (
        SECURITY + "        protocol: sasl_ssl\n",
        [(5, "clusters.main.security.mechanism", "protocol sasl_ssl needs it")],
    ),
    "sasl without login": (
        SECURITY + "        protocol: sasl_ssl\n        mechanism: PLAIN\n",
        [
            (5, "clusters.main.security.username", "PLAIN needs it"),
            (5, "clusters.main.security.password", "PLAIN needs it"),
        ],
    ),
    "login without sasl": (
        SECURITY + "        username: app\n",
        [(6, "clusters.main.security.username", "protocol plaintext has no login")],
    ),
    "tls file without tls": (
        SECURITY + "        ca: ca.pem\n",
        [(6, "clusters.main.security.ca", "protocol plaintext has no encryption")],
    ),
    "tls file missing": (
        SECURITY + "        protocol: ssl\n        ca: ca.pem\n",
        [(7, "clusters.main.security.ca", "'ca.pem' does not exist")],
    ),
    "verify": (
        SECURITY + "        protocol: ssl\n        verify: false\n",
        [
            (
                7,
                "clusters.main.security.verify",
                "not be verified. Fix: write verify: true, or also allow_insecure: true",
            )
        ],
    ),
    "password in the clear": (
        SECURITY
        + "        protocol: sasl_plaintext\n        mechanism: PLAIN\n        username: a\n        password: b\n",
        [(6, "clusters.main.security.protocol", "PLAIN without TLS sends the password unencrypted")],
    ),
    "oauth": (
        SECURITY
        + "        protocol: sasl_ssl\n        mechanism: OAUTHBEARER\n"
        + "        oauth: {token_url: 'file:///x', client_id: a}\n",
        [
            (8, "clusters.main.security.oauth.client_secret", "OAUTHBEARER needs it"),
            (8, "clusters.main.security.oauth.token_url", "not https"),
        ],
    ),
    "secret variable": (
        SECURITY
        + "        protocol: sasl_ssl\n        mechanism: PLAIN\n        username: a\n        password: {env: NOPE}\n",
        [(9, "clusters.main.security.password", "the environment variable 'NOPE' is not set")],
    ),
    "secret file": (
        SECURITY
        + "        protocol: sasl_ssl\n        mechanism: PLAIN\n        username: a\n        password: {file: nope}\n",
        [(9, "clusters.main.security.password", "the secret file 'nope' cannot be read")],
    ),
    "secret place": (
        SECURITY
        + "        protocol: sasl_ssl\n        mechanism: PLAIN\n        username: a\n        password: {vault: x}\n",
        [(9, "clusters.main.security.password", "this is not a place for a secret")],
    ),
    "managed option": (
        MAIN + "      client:\n        enable.auto.commit: true\n",
        [(6, "clusters.main.client.enable.auto.commit", "managed by laneway: laneway commits")],
    ),
    "managed login": (
        MAIN + "      client: {sasl.password: hunter2}\n",
        [(5, "clusters.main.client.sasl.password", "use the 'security' settings")],
    ),
    "unknown option": (
        MAIN + "      client: {socket.timeout.mss: 1}\n",
        [(5, "clusters.main.client.socket.timeout.mss", "did you mean 'socket.timeout.ms'?")],
    ),
    "option is a list": (
        MAIN + "      client: {socket.timeout.ms: [1]}\n",
        [(5, "clusters.main.client.socket.timeout.ms", "an option is one value")],
    ),
    "spark option": (
        "default:\n  spark:\n    conf: {sql.x: 1}\n",
        [(3, "spark.conf.sql.x", "starts with 'spark.'. Fix: write 'spark.sql.x'")],
    ),
    "speculation": (
        "default:\n  spark: {conf: {spark.speculation: true}}\n",
        [(2, "spark.conf.spark.speculation", "must stay off")],
    ),
    "tracebacks with secrets": (
        "default:\n  spark: {conf: {spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled: true}}\n",
        [(2, "spark.conf.spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled", "must stay off: it prints")],
    ),
    "spark checkpoint": (
        "default:\n  spark: {conf: {spark.sql.streaming.checkpointLocation: x}}\n",
        [(2, "spark.conf.spark.sql.streaming.checkpointLocation", "remove it")],
    ),
    "spark daemon": (
        "default:\n  spark: {conf: {spark.python.daemon.module: x}}\n",
        [(2, "spark.conf.spark.python.daemon.module", "starts the Python workers itself")],
    ),
    "spark master": ("default:\n  spark: {master: kubernetes}\n", [(2, "spark.master", "this is not a Spark master")]),
    "spark tasks": ("default:\n  spark: {tasks: 0}\n", [(2, "spark.tasks", "0 is out of range")]),
    "spark trigger": ("default:\n  spark: {trigger: 5}\n", [(2, "spark.trigger", "5 has no unit")]),
    "spark target": ("default:\n  spark: {batch_time: 0s}\n", [(2, "spark.batch_time", "from 10ms to 1h")]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_broken_file_is_explained(name, tmp_path):
    """Every broken file gives exactly the expected problems, each with its line, key, reason and fix."""
    text, expected = CASES[name]
    path = tmp_path / "laneway.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(path)
    actual = caught.value.problems
    assert [(line, key) for line, key, _ in expected] == [(problem.line, problem.key) for problem in actual]
    for (_, _, part), problem in zip(expected, actual, strict=True):
        assert part in str(problem)
        assert problem.fix


def test_all_problems_are_reported_at_once(tmp_path):
    """A file with ten errors of all kinds gives ten problems in one error, in the order of the file."""
    path = tmp_path / "laneway.yaml"
    path.write_text(
        "default:\n"
        "  engine: fast\n"
        "  drain: 5\n"
        "  clusters:\n"
        "    main:\n"
        "      brokers: [kafka]\n"
        "      consumer: {heartbeat_interval: 50s}\n"
        "      client: {group.id: x}\n"
        "  handlers:\n"
        "    charge: {lanes: many, cluster: other}\n"
        "  topics: {a: {}}\n"
        "  spark: {mastr: local}\n"
        "  drain: 6s\n"
    )
    with pytest.raises(SettingsError) as caught:
        load(path)
    actual = [problem.line for problem in caught.value.problems]
    assert actual == [2, 3, 6, 7, 8, 10, 10, 11, 12, 13]
    assert str(caught.value).startswith("10 problems in the configuration\n")
