"""Secrets reach the client and nothing else."""

from __future__ import annotations

import json
import pickle

import pytest

from laneway.errors import SettingsError
from laneway.settings import Secret, load

PLANTED = "pl4nted-s3cret"
LOGIN = {"protocol": "sasl_ssl", "mechanism": "PLAIN", "username": "app"}


def test_a_secret_shows_only_a_mask():
    """Printing, formatting and joining a secret gives the mask; only reveal gives the text."""
    secret = Secret(PLANTED)
    assert [str(secret), repr(secret), f"{secret}", f"{secret!r}", "%s" % secret] == ["••••"] * 5  # noqa: UP031
    assert secret.reveal() == PLANTED


def test_secrets_compare_hash_and_pickle_by_value():
    """Two secrets with one text are equal, before and after pickling."""
    secret = Secret(PLANTED)
    assert Secret(PLANTED) == secret
    assert Secret("other") != secret
    assert {secret} == {Secret(PLANTED)}
    assert secret == pickle.loads(pickle.dumps(secret))  # noqa: S301 - our own bytes


def places(tmp_path):
    (tmp_path / "secret").write_text(f"{PLANTED}\n")
    return {
        "literal": PLANTED,
        "variable": {"env": "KAFKA_PASSWORD"},
        "file": {"file": str(tmp_path / "secret")},
    }


@pytest.mark.parametrize("place", ["literal", "variable", "file"])
def test_a_secret_is_found_and_never_printed(place, tmp_path):
    """Wherever a secret comes from, the client gets it and no text of the settings holds it."""
    password = places(tmp_path)[place]
    oauth = {"client_secret": password}
    security = {**LOGIN, "password": password, "key_password": password, "oauth": oauth}
    overrides = {"clusters.main.security": security, "spark.conf": {"spark.hadoop.fs.s3a.secret.key": password}}
    settings = load(environ={"KAFKA_PASSWORD": PLANTED}, overrides=overrides)
    assert settings.cluster().client_options()["sasl.password"] == PLANTED
    assert settings.spark.conf["spark.hadoop.fs.s3a.secret.key"] == PLANTED
    texts = [str(settings), repr(settings), json.dumps(settings.dump()), settings.model_dump_json()]
    texts += [str(settings.model_dump()), str(settings.cluster()), str(settings.warnings), str(settings.origins)]
    assert [text for text in texts if PLANTED in text] == []
    masked = settings.dump()["clusters"]["main"]["security"]
    assert [masked["password"], masked["key_password"]] == ["••••"] * 2


WRONG_PLACES = [
    f"default: {{clusters: {{main: {{brokers: 'h:1', security: {PLANTED}}}}}}}",
    f"default: {{clusters: {{main: {{brokers: 'h:1', security: {{password: [{PLANTED}]}}}}}}}}",
    f"default: {{clusters: {{main: {{brokers: 'h:1', security: {{password: {{env: NOPE, file: {PLANTED}}}}}}}}}}}",
    f"default: {{clusters: {{main: {{brokers: 'h:1', security: {{password: {PLANTED}}}}}}}}}",
    f"default: {{clusters: {{main: {{brokers: 'h:1', security: {{passwort: {PLANTED}}}}}}}}}",
    f"default: {{clusters: {{main: {{brokers: 'app:{PLANTED}@h:1'}}}}}}",
    f"default: {{clusters: {{main: {{brokers: 'h:1', client: {{sasl.password: {PLANTED}}}}}}}}}",
    f"default: {{clusters: {{main: {{brokers: 'h:1', client: {{sasl.jaas.config: {PLANTED}}}}}}}}}",
    f"default: {{spark: {{conf: {{fs.s3a.secret.key: {PLANTED}}}}}}}",
    f"default: {{spark: {{conf: {{spark.executor.extraJavaOptions: '-Djava.security.auth.login.config={PLANTED}'}}}}}}",
]


SECURITY = "default:\n  clusters:\n    main:\n      brokers: h:1\n      security:\n        "
WRONG_PLACES += [
    # What YAML makes of a password without quotes.
    *(f"{SECURITY}password: {text}\n" for text in (f"*{PLANTED}", f"!{PLANTED}", f"!!{PLANTED}", f"{{{PLANTED}: x}}")),
    f"{SECURITY}oauth: {{client_id: a, client_secret: {{env: PATH}}, token_url: 'https://app:{PLANTED}@h/token'}}\n",
    f"default: {{spark: {{conf: {{spark.hadoop.fs.s3a.secret.key: [{PLANTED}]}}}}}}",
    f"default: {{spark: {{master: 'spark://app:{PLANTED}@h:7077'}}}}",
]


@pytest.mark.parametrize("text", WRONG_PLACES)
def test_errors_do_not_show_secrets(text, tmp_path):
    """A secret in the wrong place is refused without being shown."""
    path = tmp_path / "laneway.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(path)
    assert PLANTED not in str(caught.value)
    assert PLANTED not in repr(caught.value.problems)
    assert caught.value.__cause__ is None


def test_a_literal_secret_is_warned_about(tmp_path):
    """A password in the file works, but is named with its line; one from a variable is fine."""
    path = tmp_path / "laneway.yaml"
    text = "default:\n  clusters:\n    main:\n      brokers: h:1\n      security:\n        protocol: sasl_ssl\n"
    path.write_text(f"{text}        mechanism: PLAIN\n        username: a\n        password: {PLANTED}\n")
    actual = [(warning.line, warning.key, warning.message) for warning in load(path).warnings]
    assert actual == [(9, "clusters.main.security.password", "the secret is in the file")]
    path.write_text(f"{text}        mechanism: PLAIN\n        username: a\n")
    environ = {"LANEWAY__CLUSTERS__MAIN__SECURITY__PASSWORD": PLANTED}
    assert load(path, environ=environ).warnings == ()


def test_a_literal_secret_among_spark_s_options_is_warned_about(tmp_path):
    """By its name, or as part of an address; what comes from a variable is fine."""
    path = tmp_path / "laneway.yaml"
    options = [
        "spark.a: 1",
        f"spark.hadoop.a.secret.key: {PLANTED}",
        f"spark.b: http://me:{PLANTED}@h",
        "spark.c.token: {env: T}",
    ]
    path.write_text("default:\n  spark:\n    conf:\n" + "".join(f"      {option}\n" for option in options))
    warnings = load(path, environ={"T": PLANTED}).warnings
    assert [(found.line, found.key) for found in warnings] == [
        (5, "spark.conf.spark.hadoop.a.secret.key"),
        (6, "spark.conf.spark.b"),
    ]
    assert {found.message for found in warnings} == {"the secret is in the file"}


def test_a_profile_replaces_the_place_of_a_secret(tmp_path):
    """``{file: ...}`` over ``{env: ...}`` is one place, not two."""
    (tmp_path / "secret").write_text(PLANTED)
    path = tmp_path / "laneway.yaml"
    path.write_text(
        "default:\n  clusters:\n    main:\n      brokers: h:1\n      security: {protocol: sasl_ssl, mechanism: PLAIN,"
        " username: a, password: {env: NOPE}}\n"
        "prod:\n  clusters: {main: {security: {password: {file: secret}}}}\n"
    )
    assert load(path, profile="prod").cluster().security.password.reveal() == PLANTED


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"x" * 70_000])
def test_unusable_secret_files_are_refused(content, tmp_path):
    """An empty, binary or huge secret file is a problem, not an empty password."""
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match="the secret file"):
        load(overrides={"clusters.main.security": {**LOGIN, "password": {"file": str(file)}}})


@pytest.mark.parametrize(
    ("security", "expected"),
    [
        ({**LOGIN, "password": {"env": "P"}}, []),
        ({"protocol": "ssl", "verify": False, "allow_insecure": True}, ["clusters.main.security.verify"]),
        (
            {**LOGIN, "password": {"env": "P"}, "protocol": "sasl_plaintext", "mechanism": "SCRAM-SHA-256"},
            ["clusters.main.security.protocol"],
        ),
        (
            {**LOGIN, "password": {"env": "P"}, "protocol": "SASL_PLAINTEXT", "allow_plaintext_passwords": True},
            ["clusters.main.security.allow_plaintext_passwords"],
        ),
    ],
)
def test_risky_security_is_warned_about(security, expected):
    """What is allowed but risky is listed in the warnings."""
    settings = load(environ={"P": PLANTED}, overrides={"clusters.main.security": security})
    assert expected == [warning.key for warning in settings.warnings]
