"""A taken port is noticed before a broker is started on it."""

from __future__ import annotations

import os
import socket

import pytest

from laneway.devkit.broker._ports import free_ports, is_free, require_free
from laneway.errors import BrokerError


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_named_with_its_holder(taken):
    """The message names the port, the process that holds it, and the fix."""
    with pytest.raises(
        BrokerError, match=rf"Port {taken} on .* is in use by .*\(process {os.getpid()}\)\. Fix: .*--port 0"
    ):
        require_free(taken)


def test_a_port_is_free_again_after_its_server_closed():
    """Connections that closed a moment ago do not make a port look taken."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()

    assert is_free(port)


def test_chosen_ports_are_free_and_different():
    """As many ports as asked for, all of them free."""
    ports = free_ports(4)

    assert (len(set(ports)), all(is_free(port) for port in ports)) == (4, True)


@pytest.mark.parametrize("port", [-1, 0, 65_536])
def test_a_number_that_is_no_port_is_refused(port):
    """Only 1 to 65535 are ports."""
    with pytest.raises(BrokerError, match="is not a port"):
        require_free(port)
