"""Proxy: a TCP forwarder between two loopback ports, whose connections can be cut, or held up, also at one request."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["HOST", "Proxy"]

HOST = "127.0.0.1"
_PIECE = 64 * 1024
_PATIENCE = 10.0  # seconds for the proxy's own thread to answer; it never waits for the network itself
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of zero seconds: what is not sent is thrown away

T = TypeVar("T")


class Proxy:
    """Forwards *port* to *target* on a thread of its own. Any thread may call it.

    Args:
        target: the port that is forwarded to; nothing has to listen there yet.
        port: where to listen; 0 chooses a free one.
        knows_frames: whether clients speak Kafka's protocol without TLS, so that `hold` can see each request.
    """

    def __init__(self, target: int, port: int = 0, *, knows_frames: bool = False) -> None:
        self.target = target
        self.knows_frames = knows_frames
        self._links: set[_Link] = set()
        self._flow = asyncio.Event()
        self._flow.set()
        self._resume: asyncio.TimerHandle | None = None
        self._held_key: int | None = None
        self._held: list[bytes] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{target}", daemon=True)
        self._thread.start()
        try:
            self._server = self._do(self._listen(port))
        except BaseException:
            self._end_thread()
            raise
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connections(self) -> int:
        """How many connections there are at this moment."""
        return len(self._links)

    def reset_all(self) -> int:
        """Cut every connection, both sides at once, with RST instead of a goodbye; gives how many there were."""

        async def cut() -> int:
            links = list(self._links)
            for link in links:
                link.reset()
            return len(links)

        return self._do(cut())

    def stall(self, seconds: float) -> None:
        """Forward nothing for some time: connections stay open, new ones are accepted, and no answer comes."""

        async def hold() -> None:
            self._flow.clear()
            self._cancel_resume()
            self._resume = self._loop.call_later(seconds, self._flow.set)

        self._do(hold())

    def resume(self) -> None:
        """Forward again, before a stall is over by itself."""

        async def go_on() -> None:
            self._cancel_resume()
            self._flow.set()

        self._do(go_on())

    def hold(self, api_key: int) -> None:
        """Hold back the next Kafka request of this kind, and what its client sends after it on the same connection."""

        async def begin() -> None:
            self._held_key = api_key

        self._do(begin())

    @property
    def held(self) -> int:
        """How many requests are held back."""
        return len(self._held)

    def deliver_held(self) -> list[bytes]:
        """Send to the broker what was held back, and give the answers: that is how a request arrives late.

        It has a connection of its own, so that of its client may have been cut meanwhile.
        """

        async def deliver() -> list[bytes]:
            answers = []
            while self._held:
                reader, writer = await asyncio.open_connection(HOST, self.target)
                writer.write(self._held.pop(0))
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                answers.append(await reader.readexactly(length))
                writer.close()
            return answers

        return self._do(deliver())

    def close(self) -> None:
        """Stop listening and cut what is left."""
        if self._loop.is_closed():
            return

        async def end() -> None:
            self._cancel_resume()
            self._server.close()
            links = list(self._links)
            for link in links:
                link.reset()
            await asyncio.gather(*(link.over.wait() for link in links))
            await self._server.wait_closed()

        self._do(end())
        self._end_thread()

    def keeps(self, frame: bytes) -> bool:
        """Internal: whether a request is held back from now on; called on the proxy's loop."""
        if self._held_key is None or struct.unpack_from(">h", frame, 4)[0] != self._held_key:
            return False
        self._held_key = None
        self._held.append(frame)
        return True

    async def _listen(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._accept, HOST, port, limit=_PIECE)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer, self._flow, self)
        self._links.add(link)
        try:
            await link.run(reader, self.target)
        finally:
            self._links.discard(link)
            link.over.set()

    def _cancel_resume(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None

    def _do(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()


class _Link:
    """One connection through the proxy. Lives on the proxy's loop."""

    def __init__(self, client: asyncio.StreamWriter, flow: asyncio.Event, proxy: Proxy) -> None:
        self.over = asyncio.Event()
        self._writers = [client]
        self._flow = flow
        self._proxy = proxy
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, reader: asyncio.StreamReader, target: int) -> None:
        """Forward both ways until one side ends; then both do."""
        try:
            self._tasks = [asyncio.create_task(self._forward(reader, target))]
            await asyncio.wait(self._tasks)
            failure = self._tasks[0].cancelled() or self._tasks[0].exception()
            if failure:
                self.reset()
        finally:
            for writer in self._writers:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    def reset(self) -> None:
        """Cut both sides with RST."""
        for writer in self._writers:
            made = writer.get_extra_info("socket")
            with suppress(OSError):
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()

    async def _forward(self, reader: asyncio.StreamReader, target: int) -> None:
        # A connection that is made during a stall gets no further than this.
        await self._flow.wait()
        theirs, back = await asyncio.open_connection(HOST, target, limit=_PIECE)
        self._writers.append(back)
        pumps = [
            asyncio.create_task((self._pump_frames if self._proxy.knows_frames else self._pump)(reader, back)),
            asyncio.create_task(self._pump(theirs, self._writers[0])),
        ]
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in done:
                pump.result()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_PIECE):
            await self._flow.wait()
            writer.write(piece)
            await writer.drain()

    async def _pump_frames(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(4)
                frame = head + await reader.readexactly(struct.unpack(">i", head)[0])
                await self._flow.wait()
                if self._proxy.keeps(frame):
                    await reader.read(-1)  # until the connection is cut
                    return
                writer.write(frame)
                await writer.drain()
