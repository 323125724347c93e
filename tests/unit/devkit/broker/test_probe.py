"""The two hand-written requests and their answers follow the Kafka protocol."""

from __future__ import annotations

import socket
import struct
from datetime import timedelta
from threading import Thread

import pytest

from laneway.devkit.broker._probe import BrokerAddress, ask_api_versions, parse_brokers, request

PATIENCE = timedelta(seconds=5)


def answering(answer: bytes) -> int:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(1024)
            connection.sendall(answer)

    Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]


def test_a_request_carries_its_own_length():
    """The first four bytes count the rest."""
    message = request(18, 0)

    assert (len(message) - 4, 18, 0) == struct.unpack_from(">ihh", message)


def test_the_brokers_of_an_answer_are_read():
    """Racks, absent or present, are stepped over."""
    first = struct.pack(">ih4sih", 1, 4, b"host", 9092, -1)
    second = struct.pack(">ih1sih2s", 2, 1, b"h", 9093, 2, b"r1")

    expected = [BrokerAddress(1, "host", 9092), BrokerAddress(2, "h", 9093)]
    assert expected == parse_brokers(struct.pack(">i", 2) + first + second + b"rest")


def test_a_cut_answer_is_not_a_kafka_answer():
    """Half an answer raises ValueError, not struct.error."""
    with pytest.raises(ValueError, match="not a Kafka answer"):
        parse_brokers(struct.pack(">i", 2))


def test_an_answer_gives_the_number_of_request_types():
    """The count of the ApiVersions answer is given."""
    assert ask_api_versions("127.0.0.1", answering(struct.pack(">iihi", 10, 1, 0, 75)), PATIENCE) == 75


def test_a_web_server_is_not_kafka():
    """Another protocol's answer is recognised as such."""
    with pytest.raises(ValueError, match="not a Kafka answer"):
        ask_api_versions("127.0.0.1", answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"), PATIENCE)


def test_a_closed_connection_hints_at_tls():
    """A listener that hangs up may want TLS."""
    with pytest.raises(ValueError, match="TLS"):
        ask_api_versions("127.0.0.1", answering(b""), PATIENCE)
