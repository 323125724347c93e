"""HandlerDedup: which records of a handler may be called, and which are done, by the answers of a store."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from laneway.dedup._store import id_text
from laneway.dedup._transaction import Claim, current
from laneway.errors import ClaimedError, DedupError, DedupStoreError, Duplicate, UnreachableStateError, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from laneway._declare.record import Record
    from laneway.dedup._client import Answer, DedupClient
    from laneway.dedup._inline import InlineClient
    from laneway.dedup._store import Refusal, Store

    Place = tuple[str, int, int]

__all__ = ["HandlerDedup"]

_SOON = 0.02  # seconds until a record is tried again whose id is in work in this process
_MOST = 1.0  # seconds until the store is asked again about an id of another owner, who may finish long before its lease


class _Held:
    """A record whose id is ours, or asked for."""

    __slots__ = ("id", "is_done", "is_left", "is_running", "payload", "place", "token")

    def __init__(self, place: Place, id_: str, payload: bytes) -> None:
        self.place, self.id, self.payload, self.token = place, id_, payload, 0
        self.is_running = True
        self.is_left = False
        """Its partition was given away while it ran."""
        self.is_done = False
        """A transaction of the handler has marked it."""

    @property
    def claim(self) -> Claim:
        return Claim(self.id, self.payload, self.token)


class HandlerDedup:
    """Claims the ids of a turn before its calls, and marks what was handled.

    A record has one entry here from its claim until its mark or its release; an id has one entry at most, so that two
    records of one id never run at once in this process. Between processes the store decides.

    Lanes call `begin` and `check`; the processor the rest, one call at a time.

    Args:
        store: gives ids, and says what to do while it is away.
        client: asks it.
        scope: app and handler.
    """

    def __init__(self, store: Store, client: DedupClient | InlineClient, scope: str) -> None:
        self.store, self.scope = store, scope
        self.wake: Callable[[], None] | None = None
        """Called on another thread when `confirmed` has news."""
        self.pending = 0
        """Records whose marks are under way."""
        self.unclaimed = 0
        """Records that were called without a claim, because the store was away."""
        self._client = client
        self._waits = store.on_outage == "wait"
        self._lock = threading.Lock()
        self._held: dict[Place, _Held] = {}
        self._ids: dict[str, _Held] = {}
        """Those of `_held`, and those whose marks are under way."""
        self._verdicts: dict[Place, Exception] = {}
        self._confirmed: deque[Sequence[Record[Any]]] = deque()

    @property
    def away_until(self) -> float:
        """When the store is asked again, while it is away and records wait for it."""
        return self._client.away_until if self._waits else 0.0

    def begin(self, records: Sequence[Record[Any]]) -> None:
        """Claim the ids of a turn in one round trip; `check` gives the answers."""
        current.set(self)
        asks = self._asks(records)
        if asks:
            answer = self._asked(asks)
            self._answered(asks, answer)

    async def begin_async(self, records: Sequence[Record[Any]]) -> None:
        """As `begin`, for a lane on an event loop."""
        current.set(self)
        asks = self._asks(records)
        if not asks:
            return
        answer = self._asked(asks)
        if not answer.done():
            try:
                # Shielded: the call goes on when this lane is cancelled, so its answer is known.
                await asyncio.wait([asyncio.shield(asyncio.wrap_future(answer))])
            except asyncio.CancelledError:
                answer.add_done_callback(lambda done: self._give_back(asks, done))
                raise
        self._answered(asks, answer)

    def check(self, record: Record[Any]) -> None:
        """Say whether a record may be called now.

        Raises:
            Duplicate: its id is done.
            ClaimedError: another owner has its id.
            DedupError: it has no id, or its id is that of another payload.
            DedupStoreError: the store is away.
        """
        if self._verdicts:
            verdict = self._verdicts.pop(_place(record), None)
            if verdict is not None:
                raise verdict
        if self._waits and not self._client.is_valid:
            raise ClaimedError("the lease of its claim may have ended", retry_after=_SOON)

    def ended(self, records: Iterable[Record[Any]]) -> None:
        """The turn of these records is over; called after `mark` for those that were handled."""
        left = []
        with self._lock:
            for record in records:
                place = _place(record)
                self._verdicts.pop(place, None)
                held = self._held.get(place)
                if held is not None:
                    held.is_running = False
                    if held.is_left:
                        left.append(self._remove(held))
        self._release(left)

    def mark(self, records: Sequence[Record[Any]]) -> Sequence[Record[Any]]:
        """Mark records as done; returns those for which there is nothing to write. `confirmed` gives the others."""
        claims, marked, over = [], [], []
        with self._lock:
            for record in records:
                held = self._held.pop(_place(record), None)
                if held is None:
                    over.append(record)
                elif held.is_done:
                    del self._ids[held.id]
                    over.append(record)
                else:
                    claims.append(held.claim)
                    marked.append(record)
        if claims:
            self.pending += len(claims)
            self._client.finish(claims, lambda: self._written(claims, marked))
            if self._client.is_inline:
                over += self.confirmed()
        return over

    def confirmed(self) -> list[Record[Any]]:
        """Records whose marks the store has, each once."""
        found: list[Record[Any]] = []
        while self._confirmed:
            found += self._confirmed.popleft()
        self.pending -= len(found)
        return found

    def finished(self, records: Iterable[Record[Any]]) -> None:
        """The outcome of these records is durable: what is not marked is given back."""
        if self._held:
            with self._lock:
                left = [held for record in records if (held := self._held.get(_place(record))) is not None]
                claims = [self._remove(held) for held in left]
            self._release(claims)

    def leave(self, topic: str, partition: int) -> None:
        """A partition was given away: its ids are given back, those of calls that run when they have ended."""
        claims = []
        with self._lock:
            for place, held in list(self._held.items()):
                if place[:2] == (topic, partition):
                    held.is_left = True
                    if not held.is_running:
                        claims.append(self._remove(held))
        self._release(claims)

    def close(self) -> None:
        """Give back what is left."""
        with self._lock:
            claims = [self._remove(held) for held in list(self._held.values())]
        self._release(claims)

    def of(self, records: Sequence[Record[Any]]) -> Sequence[Claim]:
        """The claims of some records that are called now, sorted by id.

        Raises:
            Duplicate: all of them are done.
            DedupError: one has no claim.
            DedupStoreError: the store was away when it was asked for.
        """
        found = []
        with self._lock:
            for record in records:
                held = self._held.get(_place(record))
                if held is None and not self._waits:
                    raise DedupStoreError("a transaction needs its claim, and the store was away", retry_after=0.1)
                if held is None:
                    raise DedupError(f"{record.topic}/{record.partition}/{record.offset} is not called here now")
                found.append(held)
        if found and all(held.is_done for held in found):
            raise Duplicate
        return sorted(held.claim for held in found)

    def committed(self, records: Sequence[Record[Any]]) -> None:
        """A transaction of the handler has marked these."""
        with self._lock:
            found = [held for record in records if (held := self._held.get(_place(record))) is not None]
            for held in found:
                held.is_done = True
        self._client.forget([held.id for held in found])

    def forget(self, records: Sequence[Record[Any]]) -> None:
        """Ask the store again before the next call of these."""
        with self._lock:
            found = [held for record in records if (held := self._held.get(_place(record))) is not None]
            for held in found:
                self._remove(held)
        self._client.forget([held.id for held in found])

    def _asks(self, records: Sequence[Record[Any]]) -> list[_Held]:
        """What must be asked of the store; whatever is known already is a verdict, or nothing."""
        asks, id_of = [], self.store.id
        is_valid = self._client.is_valid
        with self._lock:
            for record in records:
                place = _place(record)
                held = self._held.get(place)
                if held is not None and (is_valid or held.is_running or held.is_done):
                    if held.is_running:
                        # The partition was given away and came back, and its call of then has not ended.
                        self._verdicts[place] = ClaimedError("an earlier call of it runs", retry_after=_SOON)
                    elif held.is_done:
                        self._verdicts[place] = Duplicate()
                    held.is_running, held.is_left = True, False
                    continue
                if held is not None:
                    self._remove(held)  # others may have it by now
                try:
                    id_ = id_text(id_of(record))
                except Exception as error:  # noqa: BLE001 - a user's function, on a record that may be poison
                    reason = str(error) if isinstance(error, DedupError) else f"its id cannot be read: {text_of(error)}"
                    self._verdicts[place] = DedupError(reason)
                    continue
                if id_ in self._ids:
                    self._verdicts[place] = ClaimedError(f"id {id_} is in work", retry_after=_SOON)
                    continue
                held = self._held[place] = self._ids[id_] = _Held(place, id_, _hash(record))
                asks.append(held)
        return asks

    def _asked(self, asks: list[_Held]) -> Future[Answer]:
        return self._client.claim([held.id for held in asks], [held.payload for held in asks])

    def _answered(self, asks: list[_Held], answer: Future[Answer]) -> None:
        try:
            token, refused = answer.result()
        except Exception as error:  # noqa: BLE001 - no lane may end because of a store
            with self._lock:
                for held in asks:
                    self._remove(held)
                    if self._waits:
                        self._verdicts[held.place] = error
            self.unclaimed += 0 if self._waits else len(asks)
            return
        with self._lock:
            for at, held in enumerate(asks):
                if at in refused:
                    self._remove(held)
                    self._verdicts[held.place] = _verdict(held, refused[at])
                else:
                    held.token = token

    def _give_back(self, asks: list[_Held], answer: Future[Answer]) -> None:
        """The lane that has asked is gone."""
        refused = answer.result().refused if answer.exception() is None else dict.fromkeys(range(len(asks)))
        claims = []
        with self._lock:
            for at, held in enumerate(asks):
                claim = self._remove(held)
                if at not in refused:
                    claims.append(claim._replace(token=answer.result().token))
        self._client.release(claims)

    def _written(self, claims: Sequence[Claim], records: Sequence[Record[Any]]) -> None:
        with self._lock:
            for claim in claims:
                del self._ids[claim.id]
        self._confirmed.append(records)
        if self.wake is not None and not self._client.is_inline:
            self.wake()

    def _remove(self, held: _Held) -> Claim:
        """Called with the lock held."""
        if self._held.pop(held.place, None) is not held or self._ids.pop(held.id, None) is not held:
            raise UnreachableStateError(f"{held.place} has two claims. Please open an issue.")
        return held.claim if not held.is_done else held.claim._replace(token=-1)

    def _release(self, claims: Sequence[Claim]) -> None:
        ours = [claim for claim in claims if claim.token > 0]
        if ours:
            self._client.release(ours)


def _place(record: Record[Any]) -> Place:
    return record.topic, record.partition, record.offset


def _hash(record: Record[Any]) -> bytes:
    digest = hashlib.blake2b(record.key or b"", digest_size=16)
    digest.update(b"\0" if record.raw is None else record.raw)
    return digest.digest()


def _verdict(held: _Held, refusal: Refusal) -> Exception:
    if refusal.state == "done":
        return Duplicate()
    if refusal.state == "claimed":
        return ClaimedError(
            f"id {held.id} is claimed by another process for {refusal.seconds:.1f} s",
            retry_after=min(_MOST, max(_SOON, refusal.seconds)),
        )
    return DedupError(f"id {held.id} was used before with another key or value")
