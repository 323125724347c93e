"""AnswerProxy: a TCP forwarder that knows Kafka's frames and replaces the broker's answers to Produce requests."""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from typing import Self

__all__ = ["AnswerProxy"]

_PRODUCE = 0
_FLEXIBLE = 9  # from this version on lengths are variable


class AnswerProxy:
    """Forwards a port to another one; `errors` holds the codes for the next answers to Produce requests.

    The broker has written the messages all the same: only its answer is changed.
    """

    def __init__(self, target: int, port: int) -> None:
        self._target = target
        self.errors: deque[int] = deque()
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for found in [self._server, *self._sockets]:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
            found.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                broker = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, broker]
                versions: dict[int, int] = {}
                for pump in (self._requests, self._answers):
                    threading.Thread(target=self._pumped, args=(pump, client, broker, versions), daemon=True).start()

    @staticmethod
    def _pumped(pump, client: socket.socket, broker: socket.socket, versions: dict[int, int]) -> None:
        with suppress(OSError, EOFError, ValueError):
            pump(client, broker, versions)
        client.close()
        broker.close()

    def _requests(self, client: socket.socket, broker: socket.socket, versions: dict[int, int]) -> None:
        while True:
            frame = _frame(client)
            key, version, correlation = struct.unpack_from(">hhi", frame)
            if key == _PRODUCE:
                versions[correlation] = version
            broker.sendall(struct.pack(">i", len(frame)) + frame)

    def _answers(self, client: socket.socket, broker: socket.socket, versions: dict[int, int]) -> None:
        while True:
            frame = bytearray(_frame(broker))
            version = versions.pop(struct.unpack_from(">i", frame)[0], None)
            if version is not None and self.errors:
                struct.pack_into(">h", frame, _place_of_error(frame, version), self.errors.popleft())
            client.sendall(struct.pack(">i", len(frame)) + frame)


def _place_of_error(frame: bytes, version: int) -> int:
    """Where the first error code of an answer to a Produce request stands."""
    if version < _FLEXIBLE:
        (length,) = struct.unpack_from(">h", frame, 8)
        return 8 + 2 + length + 4 + 4
    length = frame[6] - 1  # after the correlation id, no tags, and the number of topics
    return 6 + 1 + length + 1 + 4


def _frame(source: socket.socket) -> bytes:
    return _exactly(source, struct.unpack(">i", _exactly(source, 4))[0])


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = source.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
