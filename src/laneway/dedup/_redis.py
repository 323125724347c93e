"""RedisDedup: ids as keys of Redis."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from laneway.dedup._store import Entry, Refusal, Reply, Store, as_time, masked
from laneway.errors import DeclarationError, DedupStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["RedisDedup"]

_PATIENCE = 5.0  # seconds for a connection, and for an answer

# A value is "c<token>:<owner>:<payload>" while the id is claimed, and "d<token>:<payload>" when it is done. KEYS[1] is
# the last token. It grows with the clock of Redis, so that it does not begin again at 1 when Redis has lost its keys.
_CLAIM = """
local now = redis.call('TIME')
local token = tonumber(redis.call('GET', KEYS[1]) or '0') + 1
token = math.max(token, now[1] * 1000000 + now[2])
local text = string.format('%.0f', token)
redis.call('SET', KEYS[1], text)
local owner, lease = ARGV[1], ARGV[2]
local mine, refused = 'c' .. text .. ':' .. owner .. ':', {text}
for at = 2, #KEYS do
  local found = redis.call('SET', KEYS[at], mine .. ARGV[at + 1], 'PX', lease, 'NX', 'GET')
  if found then
    if string.sub(found, 1, 1) == 'd' then
      local known = string.sub(found, string.find(found, ':', 1, true) + 1)
      refused[#refused + 1] = at - 2
      refused[#refused + 1] = (known == '' or known == ARGV[at + 1]) and -1 or -2
    elseif string.find(found, ':' .. owner .. ':', 1, true) then
      redis.call('SET', KEYS[at], mine .. ARGV[at + 1], 'PX', lease)
    else
      refused[#refused + 1] = at - 2
      refused[#refused + 1] = redis.call('PTTL', KEYS[at])
    end
  end
end
return refused
"""
# ARGV[1] is the ttl; then for each key its token and its payload.
_FINISH = """
local lost, ttl = {}, ARGV[1]
local known = redis.call('MGET', unpack(KEYS))
for at = 1, #KEYS do
  local token, found = ARGV[2 * at] .. ':', known[at]
  if found and string.sub(found, 2, #token + 1) ~= token then
    lost[#lost + 1] = at - 1
  else
    redis.call('SET', KEYS[at], 'd' .. token .. ARGV[2 * at + 1], 'PX', ttl)
  end
end
return lost
"""
# For each key its token.
_RELEASE = """
for at = 1, #KEYS do
  local mine = 'c' .. ARGV[at] .. ':'
  if string.sub(redis.call('GET', KEYS[at]) or '', 1, #mine) == mine then redis.call('DEL', KEYS[at]) end
end
"""
# ARGV[1] is the lease; then for each key its token.
_RENEW = """
for at = 1, #KEYS do
  local mine = 'c' .. ARGV[at + 1] .. ':'
  if string.sub(redis.call('GET', KEYS[at]) or '', 1, #mine) == mine then redis.call('PEXPIRE', KEYS[at], ARGV[1]) end
end
"""


class RedisDedup(Store):
    """Keeps ids in Redis (7.0 or newer), which may lose them: see docs/once.md. Needs ``pip install laneway[redis]``.

    Args:
        url: the address, ``redis://user:password@host:6379/0``; ``rediss://`` for TLS.
        options: those of every store: ``id``, ``ttl``, ``lease``, ``on_outage``.

    Example:
        >>> RedisDedup("redis://:secret@localhost:6379/0", ttl="1d")
        RedisDedup('redis://:***@localhost:6379/0')
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(**options)
        self.url = url

    def session(self, scope: str, owner: str) -> _RedisSession:
        """Connect."""
        return _RedisSession(self, scope, owner)

    def check(self) -> None:
        """Refuse a server that deletes keys when its memory is full: a forgotten id is handled again."""
        session = self.session("check", "check")
        try:
            policy = session.info("memory").get("maxmemory_policy", "noeviction")
        finally:
            session.close()
        if policy != "noeviction" and self.on_outage == "wait":
            raise DeclarationError(
                f"{self!r}: maxmemory-policy is {policy}, so Redis may forget that a record was handled. Set it to "
                "noeviction, or accept that with on_outage='continue'"
            )

    def __repr__(self) -> str:
        """Without the password."""
        return f"RedisDedup({masked(self.url)!r})"


class _RedisSession:
    def __init__(self, store: RedisDedup, scope: str, owner: str) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError as error:
            raise DeclarationError("Redis needs redis-py: pip install 'laneway[redis]'") from error
        self._store, self._owner = store, owner
        self._errors: type[Exception] = redis.RedisError
        self._lease, self._ttl = _milliseconds(store.lease), _milliseconds(store.ttl)
        # In a cluster all keys of one call must be in one slot: that of the text in braces.
        self._prefix = f"laneway:{{{scope}}}:"
        self._last = f"laneway:{{{scope}}}token"
        try:
            # It repeats nothing by itself: what has happened to a call without an answer is for the client to find out.
            self._redis = redis.Redis.from_url(
                store.url, socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE, retry=Retry(NoBackoff(), 0)
            )
        except ValueError as error:
            raise DeclarationError(f"{store!r}: {error}") from error
        scripts = (_CLAIM, _FINISH, _RELEASE, _RENEW)
        self._claim, self._finish, self._release, self._renew = (self._redis.register_script(text) for text in scripts)
        self._guarded(self._redis.ping)

    def claim(self, ids: Sequence[str], payloads: Sequence[bytes]) -> Reply:
        """See `Session`."""
        keys = [self._last, *self._keys(ids)]
        answer = self._guarded(lambda: self._claim(keys, [self._owner, self._lease, *payloads]))
        refused = {}
        for at, rest in zip(answer[1::2], answer[2::2], strict=True):
            if rest == -1:
                refused[at] = Refusal("done")
            else:
                refused[at] = Refusal("other payload") if rest == -2 else Refusal("claimed", rest / 1000)
        return Reply(int(answer[0]), refused)

    def finish(self, ids: Sequence[str], payloads: Sequence[bytes], tokens: Sequence[int]) -> list[str]:
        """See `Session`."""
        values: list[Any] = [self._ttl, *(part for row in zip(tokens, payloads, strict=True) for part in row)]
        return [ids[at] for at in self._guarded(lambda: self._finish(self._keys(ids), values))]

    def release(self, ids: Sequence[str], tokens: Sequence[int]) -> None:
        """See `Session`."""
        self._guarded(lambda: self._release(self._keys(ids), list(tokens)))

    def renew(self, ids: Sequence[str], tokens: Sequence[int]) -> None:
        """See `Session`."""
        self._guarded(lambda: self._renew(self._keys(ids), [self._lease, *tokens]))

    def get(self, id_: str) -> Entry | None:
        """See `Session`."""
        [key] = self._keys([id_])
        found, rest = self._guarded(lambda: (self._redis.get(key), self._redis.pttl(key)))
        if found is None:
            return None
        token, _, after = found[1:].partition(b":")
        until = as_time(time.time() + rest / 1000)
        if found[:1] == b"d":
            return Entry("done", until, int(token), after)
        owner, _, payload = after.partition(b":")
        return Entry("claimed", until, int(token), payload, owner.decode())

    def put(self, id_: str, payload: bytes) -> None:
        """See `Session`."""
        self._guarded(lambda: self._redis.set(self._keys([id_])[0], b"d0:" + payload, px=self._ttl))

    def delete(self, id_: str) -> bool:
        """See `Session`."""
        return bool(self._guarded(lambda: self._redis.delete(self._keys([id_])[0])))

    def purge(self) -> int:
        """Redis does it."""
        return 0

    def info(self, section: str) -> dict[str, Any]:
        """What the server says of itself."""
        found: dict[str, Any] = self._guarded(lambda: self._redis.info(section))
        return found

    def close(self) -> None:
        """See `Session`."""
        self._redis.close()

    def _keys(self, ids: Sequence[str]) -> list[str]:
        return [self._prefix + id_ for id_ in ids]

    def _guarded(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (self._errors, OSError) as error:
            raise DedupStoreError(f"{self._store!r}: {error}") from error


def _milliseconds(duration: Any) -> int:
    return max(1, int(duration.total_seconds() * 1000))
