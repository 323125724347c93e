"""A start that cannot work names the reason and the fix, and leaves nothing running."""

from __future__ import annotations

import socket

import pytest

from laneway.devkit import broker
from laneway.errors import BrokerError

pytestmark = pytest.mark.broker


def test_a_taken_port_is_named(home):
    """The port and the fix are in the message, and no node runs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerError, match=rf"Port {port} on 127\.0\.0\.1 is in use.*Fix: "):
            broker.start(port=port, name="it", home=home)

    assert not broker.status("it", home=home).running


def test_a_wrong_setting_is_named():
    """A broker that refuses its configuration shows the line that says so."""
    with (
        pytest.raises(BrokerError, match=r"a setting is wrong\. Fix: .*\n.*num\.io\.threads"),
        broker.ephemeral(configs={"num.io.threads": "many"}),
    ):
        pass
