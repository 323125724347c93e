"""InlineClient: the claims of one member of the fake, without a thread."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from laneway.dedup._client import Answer, owner_name
from laneway.dedup._transaction import Claim
from laneway.errors import DedupStoreError, LanewayError, UnreachableStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laneway.dedup._store import Session, Store

__all__ = ["InlineClient"]

T = TypeVar("T")


class InlineClient:
    """As `DedupClient`, in the caller's thread and at once: for the fake, whose time stands still meanwhile.

    Args:
        store: where ids are kept.
        scope: app and handler.
        peers: the clients of all living members; before anyone claims, all of them renew what they have, so leases end
            only after a death.
    """

    is_inline = True
    is_valid = True
    away_until = 0.0

    def __init__(self, store: Store, scope: str, peers: list[InlineClient]) -> None:
        self._store, self._scope, self._owner = store, scope, owner_name()
        self._session: Session | None = None
        self._held: dict[str, Claim] = {}
        self._peers: list[InlineClient] | None = peers
        peers.append(self)

    def claim(self, ids: Sequence[str], payloads: Sequence[bytes]) -> Future[Answer]:
        """Ask the store."""
        answer: Future[Answer] = Future()
        rows = sorted(zip(ids, payloads, range(len(ids)), strict=True))
        try:
            for peer in self._peers or ():
                peer.renew()
            reply = self._do(lambda session: session.claim([row[0] for row in rows], [row[1] for row in rows]))
        except LanewayError as error:
            answer.set_exception(error)
            return answer
        for place, (id_, payload, _) in enumerate(rows):
            if place not in reply.refused:
                self._held[id_] = Claim(id_, payload, reply.token)
        refused = {rows[place][2]: refusal for place, refusal in reply.refused.items()}
        answer.set_result(Answer(reply.token, refused))
        return answer

    def renew(self) -> None:
        """Let the leases of all claims begin again."""
        rows = sorted(self._held.values())
        if rows:
            self._do(lambda session: session.renew([row.id for row in rows], [row.token for row in rows]))

    def finish(self, claims: Sequence[Claim], then: Callable[[], None]) -> None:
        """Mark ids as done."""
        rows = sorted(claims)
        if self._peers is not None:
            values = [row.id for row in rows], [row.payload for row in rows], [row.token for row in rows]
            self._do(lambda session: session.finish(*values))
        self.forget([row.id for row in rows])
        then()

    def release(self, claims: Sequence[Claim]) -> None:
        """Give ids back."""
        rows = sorted(claims)
        if self._peers is not None:
            self._do(lambda session: session.release([row.id for row in rows], [row.token for row in rows]))
        self.forget([row.id for row in rows])

    def forget(self, ids: Sequence[str]) -> None:
        """Renew these no more."""
        for id_ in ids:
            self._held.pop(id_, None)

    def die(self) -> None:
        """Do nothing more, as a process that is killed; its leases end by themselves."""
        if self._peers is not None:
            self.renew()
            self._peers.remove(self)
            self._peers = None
        if self._session is not None:
            self._session.close()
            self._session = None

    def close(self, timeout: float = 5.0) -> bool:  # noqa: ARG002 - as that of the other client
        """End the session."""
        self.die()
        return True

    def _do(self, work: Callable[[Session], T]) -> T:
        """Ask the store, once more on a new connection if the first one is broken."""
        for is_last in (False, True):
            if self._session is None:
                self._session = self._store.session(self._scope, self._owner)
            try:
                return work(self._session)
            except DedupStoreError:
                self._session.close()
                self._session = None
                if is_last:
                    raise
        raise UnreachableStateError("the loop above returns or raises. Please open an issue.")
