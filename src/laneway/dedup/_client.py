"""DedupClient: the claims of one handler in one process, on one connection and a thread of its own."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

from laneway._clock import SystemClock
from laneway.dedup._transaction import Claim
from laneway.errors import DedupStoreError, LanewayError
from laneway.observe import RateLimit, logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway.dedup._store import Refusal, Session, Store


__all__ = ["Answer", "DedupClient", "owner_name"]

_log = logger("dedup")

_MOST = 1_000  # ids a call; Redis does nothing else meanwhile
_PAUSE, _MOST_PAUSE = 0.1, 2.0  # seconds between tries while the store is away
_PURGE = 600.0  # seconds between two looks for expired ids


class Answer(NamedTuple):
    """What became of a claim of several ids."""

    token: int
    refused: dict[int, Refusal]
    """By place in the request."""


class _Asked(NamedTuple):
    ids: Sequence[str]
    payloads: Sequence[bytes]
    answer: Future[Answer]


class DedupClient:
    """Sends what lanes ask for: all claims that wait go out together, and so do all marks.

    Every call is awaited to its end, also when its caller was cancelled, so no answer is taken for that of another
    call. After an error the connection is thrown away. What a lost call has done to the store is found out by asking
    again: a claim of the same owner is granted, a mark is repeated.

    Any thread may call it.

    Args:
        store: where ids are kept.
        scope: app and handler.
    """

    is_inline = False

    def __init__(self, store: Store, scope: str) -> None:
        self._store, self._scope = store, scope
        self._owner = owner_name()
        self._lease = store.lease.total_seconds()
        self._changed = threading.Condition()
        self._claims: list[_Asked] = []
        self._marks: list[tuple[Claim, Callable[[], None] | None]] = []
        """Each with what to do when it is written; None where a later one of the same call does it."""
        self._releases: list[Claim] = []
        self._held: dict[str, tuple[float, Claim]] = {}
        """Claims that are renewed, by id, and when that was done last; the oldest first. The thread's own."""
        self._dropped: list[str] = []
        """Ids that a handler's transaction has marked."""
        self._session: Session | None = None
        self._failures, self._trouble = 0, ""
        self.away_until = 0.0
        """When the store is tried again after an error, by the steady clock."""
        self._is_closing = self._is_abandoned = False
        self._limit = RateLimit(SystemClock())
        self._valid_until = 0.0
        self._purge_at = time.monotonic() + _PURGE
        self._thread: threading.Thread | None = None

    @property
    def is_valid(self) -> bool:
        """Whether no lease can have ended, whatever has kept this process from renewing it."""
        return time.monotonic() < self._valid_until

    def claim(self, ids: Sequence[str], payloads: Sequence[bytes]) -> Future[Answer]:
        """Ask for ids that no other record of this process has.

        The answer fails with `DedupStoreError` when the store does not answer.
        """
        answer: Future[Answer] = Future()
        with self._changed:
            now = time.monotonic()
            if now < self.away_until and self._trouble:
                answer.set_exception(DedupStoreError(self._trouble, retry_after=self.away_until - now))
                return answer
            self._claims.append(_Asked(ids, payloads, answer))
            self._wake()
        return answer

    def finish(self, claims: Sequence[Claim], then: Callable[[], None]) -> None:
        """Mark ids as done, however often that must be tried; *then* is called on the client's thread."""
        with self._changed:
            self._marks += [(claim, None) for claim in claims[:-1]]
            self._marks.append((claims[-1], then))
            self._wake()

    def release(self, claims: Sequence[Claim]) -> None:
        """Give ids back, soon."""
        with self._changed:
            self._releases += claims
            self._wake()

    def forget(self, ids: Sequence[str]) -> None:
        """Renew these no more."""
        with self._changed:
            self._dropped += ids

    def close(self, timeout: float = 5.0) -> bool:
        """End the thread when everything is sent, or when time is up; whether everything was sent."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        with self._changed:
            self._is_abandoned = True
            self._changed.notify()
        return not self._thread.is_alive()

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="laneway-dedup", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._wait_for_work()
                if self._is_over:
                    break
                claims, marks, releases = self._claims, self._marks, self._releases
                self._claims, self._marks, self._releases = [], [], []
                for id_ in self._dropped:
                    self._held.pop(id_, None)
                self._dropped = []
            try:
                # In this order: an id that is given back may be among those that are asked for.
                self._renew()
                self._write(marks)
                self._give_back(releases)
                self._ask(claims)
                self._failures, self._trouble = 0, ""
            except Exception as error:  # noqa: BLE001 - whatever a store raises, no lane may wait forever
                self._failed(error, claims, marks, releases)
        self._end_session()

    def _wait_for_work(self) -> None:
        """Called with the lock: until something is asked for, or leases are due, and the store is worth a try."""
        while True:
            now = time.monotonic()
            if self._is_over:
                return
            pause = self._lease / 4
            if now < self.away_until:
                pause = self.away_until - now
                for asked in self._claims:
                    asked.answer.set_exception(DedupStoreError(self._trouble, retry_after=pause))
                self._claims = []
            elif self._claims or self._marks or self._releases or self._valid_until - now < self._lease / 2:
                return
            self._changed.wait(min(pause, self._lease / 4))

    @property
    def _is_over(self) -> bool:
        has_work = self._claims or self._marks or self._releases
        return self._is_abandoned or (self._is_closing and not has_work)

    @property
    def _connected(self) -> Session:
        if self._session is None:
            self._session = self._store.session(self._scope, self._owner)
        return self._session

    def _renew(self) -> None:
        """Renew what is older than a quarter of a lease, when no claim may be left that is older than half of one."""
        now = time.monotonic()
        if self._valid_until - now >= self._lease / 2:
            return
        due = [claim for since, claim in self._held.values() if now - since > self._lease / 4]
        for part in _parts(sorted(due), _MOST):
            self._connected.renew([claim.id for claim in part], [claim.token for claim in part])
        for claim in due:
            del self._held[claim.id]
            self._held[claim.id] = now, claim
        self._valid_until = now + self._lease * 3 / 4
        if now > self._purge_at:
            self._purge_at = now + _PURGE
            threading.Thread(target=self._purge, name="laneway-dedup-purge", daemon=True).start()

    def _write(self, marks: list[tuple[Claim, Callable[[], None] | None]]) -> None:
        while marks:
            part = marks[:_MOST]
            rows = sorted(claim for claim, _ in part)
            lost = self._connected.finish(
                [row.id for row in rows], [row.payload for row in rows], [row.token for row in rows]
            )
            if lost and self._limit.allows("lost"):
                _log.warning(
                    "%s: %d records took longer than their lease and were claimed by another process, so they may have "
                    "been handled twice (first id: %s)", self._scope, len(lost), lost[0],
                )  # fmt: skip
            del marks[:_MOST]
            for claim, then in part:
                self._held.pop(claim.id, None)
                if then is not None:
                    then()

    def _give_back(self, releases: list[Claim]) -> None:
        while releases:
            part = sorted(releases[:_MOST])
            self._connected.release([claim.id for claim in part], [claim.token for claim in part])
            del releases[:_MOST]
            for claim in part:
                self._held.pop(claim.id, None)

    def _ask(self, claims: list[_Asked]) -> None:
        """All that lanes ask for in as few calls as their size allows."""
        while claims:
            count = size = 0
            while count < len(claims) and (not count or size + len(claims[count].ids) <= _MOST):
                size += len(claims[count].ids)
                count += 1
            together = claims[:count]
            rows = sorted(
                (id_, payload, which, at)
                for which, asked in enumerate(together)
                for at, (id_, payload) in enumerate(zip(asked.ids, asked.payloads, strict=True))
            )
            now = time.monotonic()
            reply = self._connected.claim([row[0] for row in rows], [row[1] for row in rows])
            del claims[:count]
            refused: list[dict[int, Refusal]] = [{} for _ in together]
            for place, refusal in reply.refused.items():
                _, _, which, at = rows[place]
                refused[which][at] = refusal
            for place, (id_, payload, _, _) in enumerate(rows):
                if place not in reply.refused:
                    self._held[id_] = now, Claim(id_, payload, reply.token)
            for asked, own in zip(together, refused, strict=True):
                if not asked.answer.done():
                    asked.answer.set_result(Answer(reply.token, own))

    def _failed(
        self,
        error: Exception,
        claims: list[_Asked],
        marks: list[tuple[Claim, Callable[[], None] | None]],
        releases: list[Claim],
    ) -> None:
        """The store is away: what must happen is kept, and callers that wait for a claim get the error."""
        pause = min(_MOST_PAUSE, _PAUSE * 2**self._failures)
        self._failures += 1
        text = str(error) if isinstance(error, LanewayError) else f"{type(error).__name__}: {error}"
        if self._limit.allows("away"):
            _log.warning("%s: the dedup store does not answer: %s", self._scope, text)
        self._end_session()
        with self._changed:
            self._trouble, self.away_until = text, time.monotonic() + pause
            self._marks[:0] = marks
            self._releases[:0] = releases
            if self._is_closing:
                self._releases = []  # they end with their leases
        for asked in claims:
            if not asked.answer.done():
                asked.answer.set_exception(DedupStoreError(text, retry_after=pause))

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()
            except Exception:  # noqa: BLE001 - it is thrown away
                _log.debug("closing the connection to a dedup store failed", exc_info=True)

    def _purge(self) -> None:
        """Delete what has expired, beside the calls of lanes."""
        try:
            session = self._store.session(self._scope, self._owner)
            try:
                while session.purge() and not self._is_closing:
                    pass
            finally:
                session.close()
        except LanewayError:
            _log.debug("expired ids could not be deleted; tried again later", exc_info=True)


def owner_name() -> str:
    """A name that no other client has, and that says where it is."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(6)}"


def _parts(rows: list[Any], most: int) -> list[list[Any]]:
    return [rows[at : at + most] for at in range(0, len(rows), most)]
