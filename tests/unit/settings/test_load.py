"""What is merged with what, and who wins."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from laneway.errors import SettingsError
from laneway.settings import ClusterSettings, HandlerSettings, Settings, SparkSettings, load

FILE = """
default:
  clusters:
    main:
      brokers: [a:1, b:2]
      client_id: billing
      client: {socket.timeout.ms: 1000}
  handlers:
    charge: {lanes: 64, timeout: 1s, order: KEY}
  topics:
    orders: {name: prod.orders.v1, cluster: main}
  drain: 10s
  spark: {master: "local[1]", conf: {spark.a: 1}}
prod:
  clusters: {main: {brokers: [k1:9093]}}
  handlers:
    charge: {lanes: 128}
  spark: {conf: {spark.b: true}}
  drain:
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "laneway.yaml"
    file.write_text(FILE)
    return file


def test_without_a_file_all_is_default():
    """No file means one cluster on this machine, the Spark engine and no handlers."""
    settings = load()
    assert Settings() == settings
    assert settings.cluster().brokers == ("127.0.0.1:9092",)
    assert ("spark", "fail", timedelta(seconds=30)) == (settings.engine, settings.on_data_loss, settings.drain)
    assert SparkSettings() == settings.spark
    assert settings.handlers.get("charge") is None


def test_the_default_profile_is_read(path):
    """Values of the file arrive with their types."""
    settings = load(path)
    assert settings.cluster("main").brokers == ("a:1", "b:2")
    assert HandlerSettings(lanes=64, timeout=timedelta(seconds=1), order="key") == settings.handlers.get("charge")
    assert (settings.topics["orders"].name, settings.topics["orders"].cluster) == ("prod.orders.v1", "main")
    assert timedelta(seconds=10) == settings.drain


def test_a_profile_is_laid_over_the_default(path):
    """Tables are merged, lists and values are replaced, an empty value brings the built-in default back."""
    settings = load(path, profile="prod")
    assert settings.cluster().brokers == ("k1:9093",)
    assert settings.cluster().client_id == "billing"
    assert (128, timedelta(seconds=1)) == (settings.handlers["charge"].lanes, settings.handlers["charge"].timeout)
    assert settings.spark.conf == {"spark.a": "1", "spark.b": "true"}
    assert timedelta(seconds=30) == settings.drain


@pytest.mark.parametrize(
    ("environ", "overrides", "expected"),
    [
        ({}, {}, "local[1]"),
        ({"LANEWAY_SPARK_MASTER": "local[2]"}, {}, "local[2]"),
        ({"LANEWAY__SPARK__MASTER": "local[3]"}, {}, "local[3]"),
        ({"LANEWAY_SPARK_MASTER": "local[2]", "LANEWAY__SPARK__MASTER": "local[3]"}, {}, "local[3]"),
        ({"LANEWAY_SPARK_MASTER": "local[2]"}, {"spark.master": "local[4]"}, "local[4]"),
        ({"LANEWAY_SPARK_MASTER": "local[2]"}, {"spark.master": None}, "local[2]"),
        ({"LANEWAY_SPARK_MASTER": "local[2]"}, {"spark": {"master": "local[5]"}}, "local[5]"),
    ],
)
def test_flags_win_over_variables_over_the_file(path, environ, overrides, expected):
    """The file is weakest, then variables, then flags; a flag that is not given changes nothing."""
    assert expected == load(path, environ=environ, overrides=overrides).spark.master


@pytest.mark.parametrize(
    ("environ", "overrides", "expected"),
    [
        ({"LANEWAY_BROKERS": "x:1, y:2"}, {}, ("x:1", "y:2")),
        ({"LANEWAY__CLUSTERS__MAIN__BROKERS": "x:1"}, {}, ("x:1",)),
        ({"LANEWAY_BROKERS": "x:1"}, {"brokers": "z:3"}, ("z:3",)),
        ({"LANEWAY_BROKERS": "x:1"}, {"clusters.main.brokers": ["z:3", "[::1]:9092"]}, ("z:3", "[::1]:9092")),
    ],
)
def test_brokers_have_a_short_name(path, environ, overrides, expected):
    """``brokers`` without a cluster means those of the default cluster."""
    assert expected == load(path, environ=environ, overrides=overrides).cluster().brokers


def test_brokers_follow_the_default_cluster(tmp_path):
    """The short name goes to the cluster that is the default in the end."""
    path = tmp_path / "laneway.yaml"
    path.write_text("default:\n  clusters: {a: {brokers: 'a:1'}, b: {brokers: 'b:1'}}\n  cluster: a\n")
    settings = load(path, environ={"LANEWAY_BROKERS": "x:1", "LANEWAY_CLUSTER": "b"})
    assert {name: item.brokers for name, item in settings.clusters.items()} == {"a": ("a:1",), "b": ("x:1",)}
    assert settings.cluster().brokers == ("x:1",)


def test_variables_find_names_with_dashes_and_capitals(tmp_path):
    """A variable cannot spell ``Charge-All``, so case and dashes do not matter."""
    path = tmp_path / "laneway.yaml"
    path.write_text("default:\n  handlers: {Charge-All: {lanes: 1}}\n")
    settings = load(path, environ={"LANEWAY__HANDLERS__CHARGE_ALL__LANES": "7"})
    assert {"Charge-All": HandlerSettings(lanes=7)} == settings.handlers


def test_raw_options_can_come_from_variables_and_flags(path):
    """The dots of an option are double underscores in a variable."""
    environ = {"LANEWAY__CLUSTERS__MAIN__CLIENT__SOCKET__TIMEOUT__MS": "5"}
    overrides = {"spark.conf.spark.sql.shuffle.partitions": 2}
    settings = load(path, environ=environ, overrides=overrides)
    assert settings.cluster().client == {"socket.timeout.ms": "5"}
    assert settings.spark.conf == {"spark.a": "1", "spark.sql.shuffle.partitions": "2"}


def test_variables_that_are_not_settings_are_left_alone():
    """Variables of the command line and of other programs are not looked at."""
    environ = {
        "LANEWAY_HOME": "/x",
        "LANEWAY_CONFIG": "x",
        "LANEWAY_PROFILE": "p",
        "LANEWAY_DEBUG": "1",
        "PATH": "/bin",
    }
    assert Settings() == load(environ=environ)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LANEWAY_BROKER", "LANEWAY_BROKER: this variable is not a setting. Fix: did you mean LANEWAY_BROKERS?"),
        ("LANEWAY_QQQQQ", "Fix: unset it, or write LANEWAY__ and the path of the setting"),
        (
            "LANEWAY__SPARK__MASTR",
            "LANEWAY__SPARK__MASTR: spark.mastr: there is no such setting. Fix: did you mean 'master'?",
        ),
        ("LANEWAY__", "this variable is not a setting"),
    ],
)
def test_unknown_variables_are_problems(name, expected):
    """A variable with a typing error is named with the right spelling, and its value is not shown."""
    with pytest.raises(SettingsError) as caught:
        load(environ={name: "hunter2"})
    assert expected in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_profile_needs_a_file():
    """Asking for a profile without a file is a problem, because its settings would be missed silently."""
    with pytest.raises(SettingsError, match="there is no profile 'prod'; the profiles are: none"):
        load(profile="prod")


def test_settings_are_frozen():
    """Settings cannot be changed after they were checked."""
    with pytest.raises(ValidationError):
        load().engine = "direct"


def test_settings_survive_pickling(path):
    """Settings are the same after pickling, with secrets, warnings and origins."""
    settings = load(path, overrides={"clusters.main.security": login("hunter2")})
    copy = pickle.loads(pickle.dumps(settings))  # noqa: S301 - our own bytes
    assert settings == copy
    assert settings.warnings == copy.warnings
    assert dict(settings.origins) == dict(copy.origins)
    assert copy.cluster().security.password.reveal() == "hunter2"


def test_cloudpickle_works_too(path):
    """The pickler of Spark carries settings to executors."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    settings = load(path)
    assert settings == pickle.loads(cloudpickle.dumps(settings))  # noqa: S301 - our own bytes


def test_equality_ignores_where_values_come_from(path):
    """The same values from a file and from flags are the same settings."""
    assert load(path, profile="prod") == load(path, profile="prod", overrides={"brokers": "k1:9093"})
    assert load(path) != load(path, profile="prod")


def test_origins_name_file_variable_and_flag(path):
    """Every value that is not a default says where it comes from."""
    settings = load(path, environ={"LANEWAY_DRAIN": "5s"}, overrides={"engine": "direct"})
    assert {"drain": "LANEWAY_DRAIN", "engine": "flag", "handlers.charge.lanes": f"{path}:9"} == {
        key: settings.origins[key] for key in ("drain", "engine", "handlers.charge.lanes")
    }
    assert "on_data_loss" not in settings.origins


def test_a_dump_can_be_loaded_again(path, tmp_path):
    """What ``config show`` prints is itself a configuration."""
    import yaml

    settings = load(path)
    copy = tmp_path / "copy.yaml"
    copy.write_text(yaml.safe_dump({"default": settings.dump()}))
    assert settings == load(copy)


def test_yaml_anchors_and_merges_work(tmp_path):
    """A few aliases are fine; a key of the table itself wins over the merged one."""
    path = tmp_path / "laneway.yaml"
    path.write_text("default:\n  handlers:\n    a: &a {lanes: 1, attempts: 2}\n    b: {<<: *a, lanes: 3}\n    c: *a\n")
    actual = load(path).handlers
    assert HandlerSettings(lanes=3, attempts=2) == actual["b"]
    assert actual["a"] == actual["c"]


def test_words_that_yaml_mistakes_are_text(tmp_path):
    """``no``, ``on`` and ``22:22`` stay text where text is expected."""
    path = tmp_path / "laneway.yaml"
    path.write_text("default:\n  clusters: {no: {brokers: h:22, client_id: on}}\n  topics: {y: {name: 22:22}}\n")
    with pytest.raises(SettingsError, match="'22:22' is not a topic name"):
        load(path)
    path.write_text("default:\n  clusters: {no: {brokers: h:22, client_id: on}}\n")
    settings = load(path)
    assert (
        settings.default_cluster,
        settings.cluster().client_id,
        settings.cluster().brokers,
    ) == ("no", "on", ("h:22",))


def test_paths_are_relative_to_the_file(path):
    """A certificate is looked for next to the configuration file, not in the working folder."""
    (path.parent / "ca.pem").write_text("x")
    settings = load(path, overrides={"clusters.main.security": {"protocol": "ssl", "ca": "ca.pem"}})
    assert (path.parent / "ca.pem",) == settings.cluster().security.ca


def test_importing_settings_is_light():
    """Neither Kafka nor Spark is imported by the settings room."""
    room = Path(__import__("laneway.settings").settings.__file__).parent
    imports = {
        line.split()[1]
        for file in room.glob("*.py")
        for line in file.read_text().splitlines()
        if line.startswith(("import ", "from "))
    }
    assert set() == {name for name in imports if name.startswith(("confluent_kafka", "pyspark"))}
    assert {"laneway._declare.cron", "laneway._declare.units", "laneway.errors"} == {
        name for name in imports if name.startswith("laneway") and not name.startswith("laneway.settings")
    }


def test_settings_can_be_changed_afterwards(path):
    """An override of loaded settings keeps everything else: secrets, origins, what handlers leave open."""
    security = login({"env": "P"})
    before = load(path, environ={"P": "hunter2"}, overrides={"clusters.main.security": security})
    after = before.with_overrides({"spark.master": "local[7]", "brokers": "z:1"})
    assert (after.cluster().brokers, after.spark.master) == (("z:1",), "local[7]")
    assert after.cluster().security == before.cluster().security
    assert after.handlers["charge"].model_fields_set == {"lanes", "timeout", "order"}
    assert after.origins["drain"] == before.origins["drain"]
    assert after.origins["spark.master"] == "flag"
    assert before == before.with_overrides({})


def test_changes_afterwards_are_checked(path):
    """A bad override of loaded settings raises like a bad flag."""
    with pytest.raises(SettingsError, match="flag: drain: 5 has no unit"):
        load(path).with_overrides({"drain": 5})


def test_warnings_stay_through_changes():
    """What was risky before is risky after a change, and is listed once."""
    before = load(overrides={"clusters.main.security": login("hunter2")})
    after = before.with_overrides({"clusters.main.producer.acks": "leader"})
    assert [warning.key for warning in after.warnings] == [
        "clusters.main.security.password",
        "clusters.main.producer.acks",
    ]
    assert after.warnings == after.with_overrides({"drain": "1s"}).warnings


def test_values_of_the_model_are_typed():
    """Code that takes a handler apart gets durations and bytes, not their text."""
    handler = load(overrides={"handlers.charge": {"timeout": "1s", "buffer_size": "1MiB"}}).handlers["charge"]
    expected = {"timeout": timedelta(seconds=1), "buffer_size": 1048576}
    assert expected == handler.model_dump(exclude_none=True)


def test_clusters_can_be_made_in_code():
    """A cluster needs only its brokers."""
    assert load(overrides={"brokers": "h:1"}).cluster() == ClusterSettings(brokers=("h:1",))


def login(password, **more):
    return {"protocol": "sasl_ssl", "mechanism": "SCRAM-SHA-512", "username": "app", "password": password, **more}
