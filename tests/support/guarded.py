"""A broker that asks for a password."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

from laneway.devkit import broker

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["guarded_broker"]


@contextmanager
def guarded_broker(password: str) -> Iterator[tuple[broker.Running, str]]:
    """A broker with a second way in, which asks user alice for a password, and the address of that."""
    with broker.ephemeral() as running, socket.socket() as free:
        free.bind((broker.HOST, 0))
        address = f"{broker.HOST}:{free.getsockname()[1]}"
        free.close()
        node = running.nodes[0]
        node.stop()
        lines = dict(line.split("=", 1) for line in node.plan.config.read_text().splitlines() if "=" in line)
        lines["listeners"] += f",GUARDED://{address}"
        lines["advertised.listeners"] += f",GUARDED://{address}"
        lines["listener.security.protocol.map"] += ",GUARDED:SASL_PLAINTEXT"
        lines["listener.name.guarded.sasl.enabled.mechanisms"] = "PLAIN"
        lines["listener.name.guarded.plain.sasl.jaas.config"] = (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{password}";'
        )
        node.plan.config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        node.start()
        yield running, address
