"""A plan survives being written down, and data keeps its cluster id."""

from __future__ import annotations

import pytest

from laneway.devkit.broker import _plan
from laneway.errors import BrokerError


def test_a_plan_is_read_back_as_it_was_written(tmp_path):
    """Saving and loading gives an equal plan."""
    plan = _plan.make("it", tmp_path, tmp_path / "data", nodes=3, port=None, ephemeral=True)
    _plan.save(plan, tmp_path)

    assert plan == _plan.load(tmp_path)


def test_all_ports_of_a_plan_differ(tmp_path):
    """Three nodes get six different ports."""
    plan = _plan.make("it", tmp_path, tmp_path / "data", nodes=3, port=None, ephemeral=True)

    assert len({port for node in plan.nodes for port in (node.port, node.controller_port)}) == 6


def test_all_ports_of_a_proxied_plan_differ(tmp_path):
    """Three nodes with proxies get twelve different ports."""
    plan = _plan.make("it", tmp_path, tmp_path / "data", nodes=3, port=None, ephemeral=True, is_proxied=True)

    ports = {
        port for node in plan.nodes for port in (node.port, node.controller_port, node.proxy.front, node.proxy.back)
    }
    assert len(ports) == 12


def test_given_ports_follow_each_other(tmp_path):
    """The nodes take the given port and the two after it."""
    plan = _plan.make("it", tmp_path, tmp_path / "data", nodes=3, port=9092, ephemeral=True)

    assert plan.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"


def test_a_cluster_of_two_is_refused(tmp_path):
    """Two nodes lose their quorum with one; only 1 and 3 are offered."""
    with pytest.raises(BrokerError, match="2 nodes is not offered"):
        _plan.make("it", tmp_path, tmp_path, nodes=2, port=None, ephemeral=True)


def test_formatted_data_keeps_its_cluster_id(tmp_path):
    """A new plan over old data uses the id that is stored there."""
    (tmp_path / "data" / "1").mkdir(parents=True)
    (tmp_path / "data" / "1" / "meta.properties").write_text("#\nnode.id=1\ncluster.id=abc\n")

    assert _plan.make("it", tmp_path, tmp_path / "data", nodes=1, port=None, ephemeral=False).cluster_id == "abc"


def test_data_of_two_clusters_is_refused(tmp_path):
    """Folders with different cluster ids are named, with a fix."""
    for number in (1, 2):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "meta.properties").write_text(f"cluster.id=id{number}\n")

    with pytest.raises(BrokerError, match=r"different clusters \(id1, id2\)\. Fix: remove"):
        _plan.stored_cluster_id(tmp_path)


def test_an_unreadable_plan_is_named(tmp_path):
    """A damaged file is named, with a fix."""
    (tmp_path / "cluster.json").write_text("{")

    with pytest.raises(BrokerError, match=r"cluster\.json cannot be read"):
        _plan.load(tmp_path)


@pytest.mark.parametrize(("name", "expected"), [("default", True), ("a.b-1", True), ("../x", False), ("", False)])
def test_a_name_cannot_leave_its_folder(name, expected):
    """Names that are paths are refused."""
    assert expected == _plan.name_is_valid(name)
