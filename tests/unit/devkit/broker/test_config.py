"""The configuration text says what the cluster promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laneway.devkit.broker import _plan
from laneway.devkit.broker._config import jvm_options, properties_text, server_properties
from laneway.errors import BrokerError

if TYPE_CHECKING:
    from pathlib import Path


def plan_of(nodes: int, folder: Path) -> _plan.ClusterPlan:
    return _plan.make("it", folder, folder / "data", nodes=nodes, port=9092, ephemeral=False)


def test_one_node_listens_on_loopback_only(tmp_path):
    """Neither clients nor controllers are reachable from other machines."""
    plan = plan_of(1, tmp_path)
    settings = server_properties(plan, plan.nodes[0])

    controller = plan.nodes[0].controller_port
    assert f"PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:{controller}" == settings["listeners"]
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert settings["auto.create.topics.enable"] is False


def test_a_proxied_node_sends_only_those_to_the_proxy_who_came_through_it(tmp_path):
    """The second listener is advertised at the proxy's port; the nodes stay with the first."""
    plan = _plan.make("it", tmp_path, tmp_path, nodes=1, port=9092, ephemeral=True, is_proxied=True)
    (node,) = plan.nodes
    settings = server_properties(plan, node)

    assert f",PROXIED://127.0.0.1:{node.proxy.back}" in settings["listeners"]
    assert f"PLAINTEXT://127.0.0.1:9092,PROXIED://{node.proxy.address}" == settings["advertised.listeners"]
    assert (
        settings["inter.broker.listener.name"],
        settings["listener.security.protocol.map"].endswith(",PROXIED:PLAINTEXT"),
    ) == ("PLAINTEXT", True)


@pytest.mark.parametrize(("nodes", "copies", "in_sync"), [(1, 1, 1), (3, 3, 2)])
def test_copies_follow_the_number_of_nodes(tmp_path, nodes, copies, in_sync):
    """Three nodes keep three copies of which two must be in sync; one node keeps one."""
    plan = plan_of(nodes, tmp_path)
    settings = server_properties(plan, plan.nodes[0])

    internal = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    assert {copies} == {settings[key] for key in (*internal, "default.replication.factor")}
    assert {in_sync} == {settings[key] for key in ("min.insync.replicas", "transaction.state.log.min.isr")}


def test_the_caller_s_settings_go_over_ours(tmp_path):
    """A setting that is given replaces the chosen one."""
    plan = plan_of(1, tmp_path)

    assert (
        server_properties(plan, plan.nodes[0], {"offsets.topic.num.partitions": 2})["offsets.topic.num.partitions"] == 2
    )


def test_addresses_cannot_be_overridden(tmp_path):
    """A setting that would break the cluster is refused by name."""
    plan = plan_of(1, tmp_path)

    with pytest.raises(BrokerError, match=r"listeners, log\.dirs cannot be set"):
        server_properties(plan, plan.nodes[0], {"log.dirs": "/tmp", "listeners": "PLAINTEXT://:1"})


def test_values_are_escaped_as_java_reads_them():
    """Backslashes, line ends and letters beyond ASCII survive the properties file."""
    assert properties_text({"a": "C:\\x\nü😀", "b": True}) == "a=C:\\\\x\\u000a\\u00fc\\ud83d\\ude00\nb=true\n"


def test_three_nodes_share_the_memory_of_one():
    """A node of three has a heap of 384 MiB, a single one of 1 GiB."""
    assert (jvm_options(1)[1], jvm_options(3)[1]) == ("-Xmx1g", "-Xmx384m")
