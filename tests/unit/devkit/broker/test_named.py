"""Named clusters refuse what cannot work before anything is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from laneway.devkit.broker import _plan, home_directory, log_files, names, status, stop
from laneway.devkit.broker._cluster import require_space
from laneway.devkit.broker._named import _directory, _renewed
from laneway.errors import BrokerError


@pytest.fixture
def old(tmp_path):
    plan = _plan.make("it", tmp_path, tmp_path / "data", nodes=1, port=9092, ephemeral=False)
    (tmp_path / "data" / "1").mkdir(parents=True)
    (tmp_path / "data" / "1" / "meta.properties").write_text(f"cluster.id={plan.cluster_id}\n")
    return plan


def test_data_of_another_kafka_is_refused(old, tmp_path):
    """Data of another version is named, with a fix."""
    other = replace(old, kafka_version="4.0.0")

    with pytest.raises(BrokerError, match=r"was written by Kafka 4\.0\.0, this is 4\.3\.1\. Fix: "):
        _renewed(other, "it", tmp_path, nodes=1, port=None, ephemeral=False)


def test_data_of_another_size_is_refused(old, tmp_path):
    """Data of one node is not opened by three."""
    with pytest.raises(BrokerError, match=r"cluster of 1 node\(s\), not 3"):
        _renewed(old, "it", tmp_path, nodes=3, port=None, ephemeral=False)


def test_data_of_another_cluster_is_refused(old, tmp_path):
    """Data whose cluster id was exchanged is not opened under this name."""
    (tmp_path / "data" / "1" / "meta.properties").write_text("cluster.id=foreign\n")

    with pytest.raises(BrokerError, match=r"belongs to another cluster \(foreign, not .*\)\. Fix: "):
        _renewed(old, "it", tmp_path, nodes=1, port=None, ephemeral=False)


def test_kept_data_keeps_its_id_on_other_ports(old, tmp_path):
    """A later start on another port is the same cluster."""
    new = _renewed(old, "it", tmp_path, nodes=1, port=9999, ephemeral=False)

    assert (old.cluster_id, "127.0.0.1:9999") == (new.cluster_id, new.bootstrap)


def test_a_full_disk_is_reported_before_the_start(tmp_path, monkeypatch):
    """Less than 1 GiB is refused with the number that is left."""
    usage = type("Usage", (), {"free": 5 * 2**20})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)

    with pytest.raises(BrokerError, match=r"Only 5 MiB are free .* Fix: free some space"):
        require_space(tmp_path / "not" / "there")


def test_a_name_that_is_a_path_is_refused(tmp_path):
    """A name cannot lead out of the clusters' folder."""
    with pytest.raises(BrokerError, match="cannot name a cluster"):
        _directory(tmp_path, "../x")


def test_what_was_never_started_has_no_status(tmp_path):
    """Looking at nothing creates nothing."""
    found = (status("it", home=tmp_path), stop("it", home=tmp_path), names(home=tmp_path), list(tmp_path.iterdir()))

    assert found == (None, False, [], [])


@pytest.mark.parametrize("ephemeral", [True, False])
def test_what_a_reboot_left_of_an_ephemeral_cluster_goes_at_stop(ephemeral, tmp_path):
    """Nothing of it runs and its data is gone; one that keeps its data stays known."""
    directory = _directory(tmp_path, "it")
    plan = _plan.make("it", directory, tmp_path / "data", nodes=1, port=9092, ephemeral=ephemeral)
    _plan.save(plan, directory)
    plan.nodes[0].directory.mkdir()
    (plan.nodes[0].directory / "server.properties").write_text("")
    assert names(home=tmp_path) == ["it"]

    assert not stop("it", home=tmp_path)
    assert names(home=tmp_path) == ([] if ephemeral else ["it"])
    assert plan.nodes[0].directory.exists() is not ephemeral


def test_the_logs_of_nothing_say_how_to_start(tmp_path):
    """Asking for logs before the first start names the command."""
    with pytest.raises(BrokerError, match="laneway kafka start --name it"):
        log_files("it", home=tmp_path)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"LANEWAY_HOME": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/laneway")),
        ({"HOME": "/c"}, Path("/c/.cache/laneway")),
    ],
)
def test_the_home_follows_the_environment(monkeypatch, variables, expected):
    """LANEWAY_HOME goes before the cache folder, that before the default."""
    for name in ("LANEWAY_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert expected == home_directory()
