"""Checks of Kafka: the jars of the development broker, its port, and brokers elsewhere."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import TYPE_CHECKING

from laneway.devkit import broker
from laneway.devkit.doctor._check import Check, failed, ok, warning

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["check_jars", "check_port", "check_reachable", "parse_address"]

_PATIENCE = timedelta(seconds=5)


def check_jars(home: Path) -> Check:
    """The jars of the development broker are fetched and are the pinned ones."""
    name = "Kafka jars"
    directory = broker.jars_directory(home)
    if not directory.is_dir():
        return warning(name, f"not fetched yet into {directory}", "run `laneway kafka fetch` (44 MB, about 40 s)")
    problems = broker.jar_problems(directory)
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        return failed(name, "; ".join(problems[:3]) + more, "run `laneway kafka fetch --force`")
    return ok(name, f"{broker.KAFKA_VERSION} in {directory}")


def check_port(home: Path, port: int = broker.DEFAULT_PORT) -> Check:
    """The default port is free, or a development cluster answers on it."""
    name = f"Port {port}"
    if broker.is_free(port):
        return ok(name, "free")
    for cluster in (broker.status(each, home=home) for each in broker.names(home=home)):
        if cluster and any(node.pid and node.address.endswith(f":{port}") for node in cluster.nodes):
            if cluster.running:
                return ok(name, f"development cluster {cluster.name!r} answers")
            fix = f"see `laneway kafka logs --name {cluster.name}`"
            return failed(name, f"development cluster {cluster.name!r} uses it but does not answer", fix)
    holder = broker.port_holder(port) or "another process"
    return warning(name, f"used by {holder}", "start the development broker with --port 0, or stop the other")


def check_reachable(address: str) -> Check:
    """A broker answers at *address*."""
    name = f"Broker {address}"
    try:
        offered = broker.ask_api_versions(*parse_address(address), _PATIENCE)
    except (OSError, ValueError) as error:
        return failed(name, *_reason_and_fix(error))
    return ok(name, f"answers with {offered} request types")


def _reason_and_fix(error: OSError | ValueError) -> tuple[str, str]:
    match error:
        case socket.gaierror():
            return f"the host name is unknown: {error.strerror}", "correct the name, or check the DNS"
        case ConnectionRefusedError():
            return "nothing listens there", "start the broker (`laneway kafka start`), or correct the port"
        case TimeoutError():
            return f"no answer in {_PATIENCE.total_seconds():.0f} s", "check firewall, VPN and port"
        case ValueError():
            return str(error), "write host:port of a Kafka listener; for one with TLS or SASL set security.protocol"
        case _:
            return str(error), "check the network"


def parse_address(text: str) -> tuple[str, int]:
    """Split ``host:port``; an IPv6 host is written in brackets.

    >>> parse_address("[::1]:9092")
    ('::1', 9092)
    """
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text.strip()!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
