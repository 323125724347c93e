"""The proxy of the fault tests forwards, cuts and delays as it says."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from support.proxy import HOST, Proxy
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.broker  # sockets, as brokers have: a port that was free may be taken


class Echo:
    """A server that says everything back, until it is closed."""

    def __init__(self) -> None:
        self._socket = socket.create_server((HOST, 0))
        self.port = self._socket.getsockname()[1]
        self.ends: list[str] = []
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except ConnectionResetError:
                self.ends.append("reset")
            else:
                self.ends.append("closed")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._acceptor.join(10)
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo) -> Iterator[Proxy]:
    with Proxy(echo.port) as made:
        yield made


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=20)


def ask(connection: socket.socket, data: bytes) -> bytes:
    """Send, and read back as much."""
    sender = threading.Thread(target=connection.sendall, args=(data,))
    sender.start()
    answer = b""
    while len(answer) < len(data):
        piece = connection.recv(65536)
        if not piece:
            break
        answer += piece
    sender.join(20)
    return answer


def test_both_ways_are_forwarded(proxy):
    """What goes in comes back, also when it is more than all buffers hold together."""
    large = bytes(range(256)) * 40_000
    with connect(proxy.port) as one, connect(proxy.port) as two:
        assert (b"hello", large) == (ask(one, b"hello"), ask(two, large))
        assert proxy.connections == 2


def test_the_end_of_one_side_is_the_end_of_the_other(proxy, echo):
    """A goodbye goes through as a goodbye, and the proxy forgets the connection."""
    with connect(proxy.port) as one:
        ask(one, b"x")

    eventually(lambda: echo.ends == ["closed"] and proxy.connections == 0, timeout=20)


def test_a_reset_cuts_every_connection(proxy, echo):
    """Both sides of each connection get RST, and new connections work at once."""
    with connect(proxy.port) as one, connect(proxy.port) as two:
        assert (ask(one, b"a"), ask(two, b"b")) == (b"a", b"b")

        assert proxy.reset_all() == 2
        for side in (one, two):
            with pytest.raises(ConnectionResetError):
                side.recv(1)
    eventually(lambda: echo.ends == ["reset", "reset"], timeout=20)
    with connect(proxy.port) as three:
        assert ask(three, b"c") == b"c"


def test_a_stall_holds_everything_up_and_loses_nothing(proxy):
    """Old and new connections stay open without an answer; after it, what was said arrives."""
    with connect(proxy.port) as old:
        ask(old, b"x")
        proxy.stall(600)
        with connect(proxy.port) as new:
            for side in (old, new):
                side.sendall(b"late")
                side.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    side.recv(1)
                side.settimeout(20)

            proxy.resume()
            assert (old.recv(4), new.recv(4)) == (b"late", b"late")


def test_a_stall_ends_by_itself(proxy):
    """After its time the proxy forwards again."""
    with connect(proxy.port) as side:
        ask(side, b"x")
        proxy.stall(0.5)
        side.sendall(b"late")
        assert side.recv(4) == b"late"


def test_a_reset_reaches_a_connection_that_is_stalled(proxy):
    """A connection that was made during a stall is cut like any other."""
    proxy.stall(600)
    with connect(proxy.port) as side:
        eventually(lambda: proxy.reset_all() == 1, timeout=20)
        with pytest.raises(ConnectionResetError):
            side.recv(1)
    eventually(lambda: proxy.connections == 0, timeout=20)


def test_a_stall_hides_that_nothing_is_behind_it():
    """A connection that is made during a stall hangs, whether the target listens or not."""
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    with Proxy(port) as proxy:
        proxy.stall(600)
        with connect(proxy.port) as side:
            side.settimeout(0.5)
            with pytest.raises(TimeoutError):
                side.recv(1)


def test_nothing_behind_it_is_a_reset(echo):
    """A connection to a target that does not listen is cut at once, not left hanging."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))  # and does not listen; were the port free, the proxy itself might be given it
        port = taken.getsockname()[1]
        # It may be cut before its client knows that it was there.
        with Proxy(port) as proxy, pytest.raises(ConnectionResetError), connect(proxy.port) as side:
            side.recv(1)


def test_a_closed_proxy_listens_no_more(echo):
    """Its port is free again and its connections are cut; closing twice is harmless."""
    proxy = Proxy(echo.port)
    with connect(proxy.port) as side:
        ask(side, b"x")
        proxy.close()
        proxy.close()
        with pytest.raises(ConnectionResetError):
            side.recv(1)
    with Proxy(echo.port, proxy.port) as again:
        assert again.port == proxy.port


def test_a_taken_port_is_reported(echo):
    """Two proxies cannot share a port, and the failed one leaves no thread."""
    before = threading.active_count()
    with pytest.raises(OSError, match="address already in use"):
        Proxy(echo.port, echo.port)
    assert threading.active_count() == before
