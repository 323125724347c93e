"""A node with a second way in sends clients that came through the proxy back to the proxy, and no others."""

from __future__ import annotations

from datetime import timedelta

import pytest
from confluent_kafka import Producer

from laneway.devkit import broker
from laneway.devkit.broker import HOST
from support.doors import Admin
from support.proxy import Proxy
from support.waiting import eventually

pytestmark = pytest.mark.broker


def test_clients_that_begin_at_a_proxy_stay_there():
    """Each way in advertises itself; a client at the proxy feels a cut, mends it, and loses nothing."""
    with broker.ephemeral(is_proxied=True) as cluster:
        (node,) = cluster.nodes
        ports = node.plan.proxy
        with Proxy(ports.back, ports.front) as proxy:
            limit = timedelta(seconds=20)
            told = [
                {found.port for found in broker.ask_brokers(HOST, port, limit)} for port in (proxy.port, node.plan.port)
            ]
            assert [{proxy.port}, {node.plan.port}] == told

            admin = Admin({"bootstrap.servers": cluster.bootstrap})
            admin.create("it", 1)
            eventually(lambda: proxy.connections == 0, timeout=20, why="the end of the first question")
            producer = Producer({"bootstrap.servers": ports.address, "enable.idempotence": True, "log_level": 0})
            producer.produce("it", b"1")
            assert producer.flush(30) == 0
            assert proxy.reset_all() > 0
            producer.produce("it", b"2")
            assert producer.flush(30) == 0
            assert (proxy.connections > 0, admin.ends("it", [0])) == (True, {0: 2})
