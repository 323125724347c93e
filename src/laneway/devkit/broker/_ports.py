"""Free ports on the loopback address, and the owner of a port in use."""

from __future__ import annotations

import random
import socket

import psutil

from laneway.errors import BrokerError

__all__ = ["DEFAULT_PORT", "HOST", "free_ports", "is_free", "port_holder", "require_free"]

HOST = "127.0.0.1"
DEFAULT_PORT = 9092

# Below the kernel's range for outgoing connections: a port in that range could be in use when a killed node
# starts again.
_CHOICES = range(20_000, 32_000)


def is_free(port: int) -> bool:
    """Whether a broker could listen on *port* now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Java sets this too; without it a port with recently closed connections would look used.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int, exclude: frozenset[int] = frozenset()) -> list[int]:
    """Choose *count* different free ports at random.

    Raises:
        BrokerError: a thousand tries were not enough.
    """
    chosen: list[int] = []
    for _ in range(1000):
        if len(chosen) == count:
            return chosen
        port = random.choice(_CHOICES)  # noqa: S311 - spread, not secrecy
        if port not in chosen and port not in exclude and is_free(port):
            chosen.append(port)
    raise BrokerError(
        f"No {count} free ports were found between {_CHOICES.start} and {_CHOICES.stop}. "
        "Fix: stop what listens there, or give a port with --port"
    )


def require_free(port: int) -> None:
    """Raise a `BrokerError` that names *port* and its owner if it is in use."""
    if not 0 < port < 65_536:
        raise BrokerError(f"{port} is not a port. Fix: give one from 1 to 65535, or 0 for any free one")
    if is_free(port):
        return
    holder = port_holder(port)
    raise BrokerError(
        f"Port {port} on {HOST} is in use{f' by {holder}' if holder else ''}. "
        f"Fix: stop it, choose another port with --port, or --port 0 for any free one"
    )


def port_holder(port: int) -> str | None:
    """The process that listens on *port*, if this user may see it."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
        if listens and connection.pid:
            try:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
            except psutil.Error:
                return f"process {connection.pid}"
    return None
