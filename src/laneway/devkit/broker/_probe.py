"""Ask a broker over a bare socket whether it speaks Kafka and which brokers it knows.

Two requests of the Kafka protocol are built here directly, so that no client library has to be loaded.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from datetime import timedelta

__all__ = ["BrokerAddress", "ask_api_versions", "ask_brokers", "parse_brokers", "request"]

_API_METADATA = 3
_API_VERSIONS = 18
_CLIENT = b"laneway-probe"
_LARGEST_ANSWER = 10_000_000


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker in the metadata."""

    id: int
    host: str
    port: int


def request(api: int, version: int, body: bytes = b"") -> bytes:
    """Build a request with its length and header version 1."""
    header = struct.pack(">hhih", api, version, 1, len(_CLIENT)) + _CLIENT
    return struct.pack(">i", len(header) + len(body)) + header + body


def ask_api_versions(host: str, port: int, timeout: timedelta = timedelta(seconds=5)) -> int:
    """The number of request types that the broker supports.

    Raises:
        OSError: no connection, or no answer in time.
        ValueError: something else than Kafka answers, or Kafka behind TLS.
    """
    answer = _exchange(host, port, request(_API_VERSIONS, 0), timeout)
    try:
        error, count = struct.unpack_from(">hi", answer)
    except struct.error as problem:
        raise ValueError("the answer is not a Kafka answer") from problem
    if error:
        raise ValueError(f"the broker refuses with error code {error}")
    return int(count)


def ask_brokers(host: str, port: int, timeout: timedelta = timedelta(seconds=5)) -> list[BrokerAddress]:
    """The live brokers that the broker at *host*, *port* knows; raises as `ask_api_versions`."""
    no_topics = struct.pack(">i", 0)
    return parse_brokers(_exchange(host, port, request(_API_METADATA, 1, no_topics), timeout))


def parse_brokers(answer: bytes) -> list[BrokerAddress]:
    """Parse the brokers of a metadata response of version 1."""
    try:
        (count,) = struct.unpack_from(">i", answer)
        position, brokers = 4, []
        for _ in range(count):
            node, length = struct.unpack_from(">ih", answer, position)
            position += 6
            host = answer[position : position + length].decode()
            position += length
            port, rack = struct.unpack_from(">ih", answer, position)
            position += 6 + max(rack, 0)
            brokers.append(BrokerAddress(node, host, port))
    except (struct.error, UnicodeDecodeError) as problem:
        raise ValueError("the answer is not a Kafka answer") from problem
    return brokers


def _exchange(host: str, port: int, message: bytes, timeout: timedelta) -> bytes:
    with socket.create_connection((host, port), timeout.total_seconds()) as connection:
        connection.sendall(message)
        (length,) = struct.unpack(">i", _read(connection, 4))
        if not 4 <= length <= _LARGEST_ANSWER:
            raise ValueError("the answer is not a Kafka answer")
        return _read(connection, length)[4:]  # after the correlation id


def _read(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ValueError("the connection was closed without an answer; TLS may be required there")
        parts += part
    return bytes(parts)
