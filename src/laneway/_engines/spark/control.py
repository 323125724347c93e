"""The control connection between the driver and the Python processes of its queries.

The driver listens; the planner of each query and every worker process connect to it, once per process, and again
whenever the connection is lost. Orders go out (stop, pause, tasks, breakers); answers, figures, statuses, notices
and log lines come in. A task never waits for the connection: without one it works as if there were no new orders.

Both sides prove that they know the token of the run before anything else is said. A frame is a length and one message
of a fixed set of types; nothing is unpickled.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Any

import msgspec

from laneway._core.locate import HandlerStatus, Location, Spot  # noqa: TC001 - the decoder looks them up
from laneway._engines.spark.plan import Position  # noqa: TC001 - the decoder looks it up
from laneway.observe import Tally  # noqa: TC001 - the decoder looks it up

__all__ = [
    "LIMIT",
    "Answer",
    "Ask",
    "BreakerReport",
    "ControlAddress",
    "Figures",
    "FromProcess",
    "LogLine",
    "Notice",
    "Orders",
    "Over",
    "Progress",
    "RefusedError",
    "TaskStatus",
    "frame",
    "prove_as_driver",
    "prove_as_process",
    "read_from_process",
    "read_to_process",
]

LIMIT = 64 * 1024 * 1024
"""Largest frame in bytes. A tally takes some 100 KB, a position nine bytes for each unfinished record."""
_LOGIN_LIMIT = 1024
_LOGIN_TIME = 5.0  # seconds; a peer that connects and sends nothing is dropped
_HEAD = 4


class RefusedError(Exception):
    """The peer does not know the token, or sent an invalid message."""


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """Where the driver of a run listens, and the number of a query. Only ever sent pickled: it holds the token."""

    host: str
    port: int
    token: bytes = field(repr=False)
    channel: int = 0


class _Challenge(msgspec.Struct, frozen=True, tag=True):
    nonce: bytes


class _Proof(msgspec.Struct, frozen=True, tag=True):
    nonce: bytes
    mac: bytes


class Orders(msgspec.Struct, frozen=True, tag=True):
    """The driver's orders for one query. Each message has the complete state, so only the newest counts."""

    channel: int = 0
    is_stopping: bool = False
    pause: int = 0
    """Number of the requested pause; 0 for none. A confirmation repeats it."""
    tasks: int = 0
    """Most tasks of a batch; 0 for no limit."""


class Answer(msgspec.Struct, frozen=True, tag=True):
    """The state of a query's planner. Each message has the complete state, so only the newest counts."""

    channel: int = 0
    is_drained: bool = False
    """The last batch is committed and no other follows."""
    paused: int = 0
    """Number of the pause in effect: no batch runs."""
    loss: str = ""
    """Data loss that must end the query in the middle of its batch."""


class BreakerReport(msgspec.Struct, frozen=True, tag=True):
    """The state of a handler's breaker. Times count from now, because clocks of machines differ."""

    app: str
    handler: str
    is_open: bool
    failures: int
    probes: int
    opened_ago: float
    probe_in: float
    error: str = ""
    """The error that opened it."""


class Figures(msgspec.Struct, frozen=True, tag=True):
    """The counts of a running task."""

    channel: int
    task: int
    attempt: int
    tally: Tally


class TaskStatus(msgspec.Struct, frozen=True, tag=True):
    """The status of a running task, for health and `why`."""

    channel: int
    task: int
    attempt: int
    handler: HandlerStatus
    partitions: list[tuple[str, int, int, int]]
    """Topic, partition, the lowest unfinished offset, and the read position."""
    locations: list[tuple[Spot, Location]]
    """Locations of the lowest unfinished records that have not changed for a second."""


class Progress(msgspec.Struct, frozen=True, tag=True):
    """The positions of each handler after a batch was committed."""

    channel: int
    batch: int
    positions: list[tuple[str, str, int, Position]]


class Notice(msgspec.Struct, frozen=True, tag=True):
    """A warning of a task or the planner."""

    channel: int
    text: str


class LogLine(msgspec.Struct, frozen=True, tag=True):
    """A log record."""

    logger: str
    level: int
    text: str


class Ask(msgspec.Struct, frozen=True, tag=True):
    """The driver requests the status of the running tasks now."""


class Over(msgspec.Struct, frozen=True, tag=True):
    """The run has ended: do not reconnect."""


FromProcess = Answer | Figures | TaskStatus | Notice | LogLine | BreakerReport
ToProcess = Orders | Progress | BreakerReport | Ask | Over

_encode = msgspec.msgpack.Encoder().encode
_LOGIN: Any = msgspec.msgpack.Decoder(_Challenge | _Proof)
_FROM: Any = msgspec.msgpack.Decoder(FromProcess)
_TO: Any = msgspec.msgpack.Decoder(ToProcess)


def frame(message: msgspec.Struct) -> bytes:
    """Encode a message with its length."""
    data = _encode(message)
    return len(data).to_bytes(_HEAD, "big") + data


async def read_from_process(reader: asyncio.StreamReader) -> FromProcess:
    """Read the next message of a worker process or planner.

    Raises:
        RefusedError: it is too long, or of an unknown type.
        EOFError: the connection was closed.
    """
    message: FromProcess = await _read(reader, _FROM, LIMIT)
    return message


async def read_to_process(reader: asyncio.StreamReader) -> ToProcess:
    """Read the next message of the driver; raises as `read_from_process`."""
    message: ToProcess = await _read(reader, _TO, LIMIT)
    return message


async def prove_as_driver(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes) -> None:
    """Challenge the connected process, check its proof, and send the driver's proof.

    Raises:
        RefusedError: it does not know the token.
    """
    challenge = _Challenge(secrets.token_bytes(32))
    writer.write(frame(challenge))
    proof = await asyncio.wait_for(_read(reader, _LOGIN, _LOGIN_LIMIT), _LOGIN_TIME)
    if not _is_proof(proof, token, b"process", challenge.nonce):
        raise RefusedError("it does not know the token of this run")
    writer.write(frame(_proof(token, b"driver", proof.nonce)))


async def prove_as_process(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes) -> None:
    """Answer the driver's challenge and check its proof.

    Raises:
        RefusedError: the server does not know the token.
    """
    challenge = await asyncio.wait_for(_read(reader, _LOGIN, _LOGIN_LIMIT), _LOGIN_TIME)
    if not isinstance(challenge, _Challenge):
        raise RefusedError("it did not send a challenge")
    ours = _proof(token, b"process", challenge.nonce)
    writer.write(frame(ours))
    answer = await asyncio.wait_for(_read(reader, _LOGIN, _LOGIN_LIMIT), _LOGIN_TIME)
    if not _is_proof(answer, token, b"driver", ours.nonce):
        raise RefusedError("it does not know the token of this run")


def _proof(token: bytes, who: bytes, challenge: bytes) -> _Proof:
    nonce = secrets.token_bytes(32)
    return _Proof(nonce, hmac.digest(token, who + nonce + challenge, hashlib.sha256))


def _is_proof(found: object, token: bytes, who: bytes, challenge: bytes) -> bool:
    # Of fixed length: otherwise bytes could be moved from one part to the next.
    if not isinstance(found, _Proof) or len(found.nonce) != 32:
        return False
    return hmac.compare_digest(found.mac, hmac.digest(token, who + found.nonce + challenge, hashlib.sha256))


async def _read(reader: asyncio.StreamReader, kind: Any, limit: int) -> Any:
    length = int.from_bytes(await reader.readexactly(_HEAD), "big")
    if length > limit:
        raise RefusedError(f"a frame of {length:,} bytes exceeds the limit of {limit:,}")
    data = await reader.readexactly(length)
    try:
        return kind.decode(data)
    except msgspec.MsgspecError as error:
        raise RefusedError(f"invalid frame: {error}") from None
