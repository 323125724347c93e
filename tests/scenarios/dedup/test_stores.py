"""What every store promises, on the real ones."""

from __future__ import annotations

import threading
import uuid

import pytest

from laneway.dedup import MemoryDedup, PostgresDedup, RedisDedup, SqliteDedup, store_of
from laneway.errors import DeclarationError
from support.waiting import eventually

A, B = b"a" * 16, b"b" * 16


@pytest.fixture
def scope():
    return f"shop.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def opened():
    """Sessions that are closed at the end."""
    kept = []

    def open_(store, scope, owner):
        kept.append(store.session(scope, owner))
        return kept[-1]

    yield open_
    for session in kept:
        session.close()


def test_an_id_goes_from_absent_to_claimed_to_done(make_store, scope, opened):
    """A claimed id is refused to others, a done one to everybody, and both say so."""
    store = make_store()
    ours, other = opened(store, scope, "us"), opened(store, scope, "them")
    token, refused = ours.claim(["x", "y"], [A, B])
    assert not refused
    found = other.claim(["x"], [A]).refused[0]
    assert found.state == "claimed"
    assert 0 < found.seconds <= 30
    assert ours.get("x")[0] == "claimed"
    assert ours.get("x").owner == "us"
    assert ours.get("z") is None
    assert ours.finish(["x"], [A], [token]) == []
    assert other.claim(["x"], [A]).refused[0].state == "done" == ours.get("x").state
    assert ours.claim(["x"], [A]).refused[0].state == "done"


def test_one_id_with_another_payload_is_an_error_and_no_duplicate(make_store, scope, opened):
    """What was handled under this id is something else."""
    session = opened(make_store(), scope, "us")
    session.finish(["x"], [A], [session.claim(["x"], [A]).token])
    assert session.claim(["x"], [B]).refused[0].state == "other payload"


def test_an_id_that_is_given_back_is_absent(make_store, scope, opened):
    """Nothing of a failed record stays."""
    store = make_store()
    ours, other = opened(store, scope, "us"), opened(store, scope, "them")
    token = ours.claim(["x"], [A]).token
    ours.release(["x"], [token])
    assert ours.get("x") is None
    assert not other.claim(["x"], [B]).refused
    ours.release(["x"], [token])
    assert other.get("x").state == "claimed"


def test_the_claim_of_a_dead_owner_ends_with_its_lease(make_store, scope, opened):
    """Another owner gets it with a higher token, and the first one cannot mark it any more."""
    store = make_store(lease="1s")
    dead, heir = opened(store, scope, "dead"), opened(store, scope, "heir")
    token = dead.claim(["x"], [A]).token
    eventually(lambda: not heir.claim(["x"], [A]).refused, timeout=5)
    assert heir.get("x").token > token
    assert dead.finish(["x"], [A], [token]) == ["x"]
    assert heir.get("x").state == "claimed"
    dead.release(["x"], [token])
    assert heir.get("x").state == "claimed"


def test_a_renewed_lease_goes_on(make_store, scope, opened):
    """An owner that lives keeps its claim beyond the lease."""
    store = make_store(lease="1s")
    ours, other = opened(store, scope, "us"), opened(store, scope, "them")
    token = ours.claim(["x", "y"], [A, A]).token
    ended = []

    def is_over():
        ours.renew(["x"], [token])
        assert other.claim(["x"], [A]).refused
        ended[:] = [other.claim(["y"], [A]).refused]
        return not ended[0]

    eventually(is_over, timeout=5)


def test_an_owner_asks_again_for_what_it_has(make_store, scope, opened):
    """An answer that was lost on the way blocks nothing: the same owner is granted its claim, with a higher token."""
    ours = opened(make_store(), scope, "us")
    first = ours.claim(["x"], [A]).token
    second = ours.claim(["x"], [A])
    assert not second.refused
    assert second.token > first


def test_a_mark_may_be_repeated(make_store, scope, opened):
    """A mark whose answer was lost is written again, with the same result."""
    ours = opened(make_store(), scope, "us")
    token = ours.claim(["x"], [A]).token
    assert ours.finish(["x"], [A], [token]) == [] == ours.finish(["x"], [A], [token])


def test_a_vanished_claim_is_marked_all_the_same(make_store, scope, opened):
    """Its record was handled, whatever has deleted the claim."""
    ours = opened(make_store(), scope, "us")
    token = ours.claim(["x", "y"], [A, B]).token
    assert ours.delete("x")
    assert ours.finish(["x", "y"], [A, B], [token, token]) == []
    assert ours.get("x").state == "done"
    assert ours.get("x").payload == A


def test_ids_are_forgotten_after_their_time(make_store, scope, opened):
    """After ``ttl`` an id is absent, and a purge leaves nothing of it."""
    store = make_store(lease="1s", ttl="1s")
    session = opened(store, scope, "us")
    session.finish(["x"], [A], [session.claim(["x"], [A]).token])
    assert session.claim(["x"], [A]).refused
    eventually(lambda: session.get("x") is None, timeout=5)
    assert not isinstance(store, (SqliteDedup, PostgresDedup, MemoryDedup)) or session.purge() >= 1
    assert not session.claim(["x"], [A]).refused


def test_scopes_are_apart(make_store, scope, opened):
    """Handlers do not see each other's ids."""
    store = make_store()
    assert not opened(store, scope, "us").claim(["x"], [A]).refused
    assert not opened(store, scope + "2", "them").claim(["x"], [A]).refused


def test_get_put_and_delete_by_id(make_store, scope, opened):
    """Operators can look at an id, mark it and forget it."""
    store = make_store()
    assert store.get("x", scope=scope) is None
    store.put("x", scope=scope)
    assert store.get("x", scope=scope).state == "done"
    assert opened(store, scope, "us").claim(["x"], [A]).refused[0].state == "done"
    assert store.delete("x", scope=scope)
    assert not store.delete("x", scope=scope)


def test_of_many_that_claim_at_once_each_id_has_one_owner(make_store, scope, opened):
    """Sixteen sessions claim overlapping ids in different orders: no deadlock, no id twice."""
    store, owned, errors = make_store(), [], []
    names = [f"id-{at:03d}" for at in range(200)]

    def work(which):
        try:
            session = opened(store, scope, f"owner-{which}")
            for at in range(10):
                part = sorted(names[(which * 7 + at * 13) % 100 :][:90])
                refused = session.claim(part, [A] * len(part)).refused
                mine = [id_ for place, id_ in enumerate(part) if place not in refused]
                owned.extend((id_, which) for id_ in mine)
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    owners = {}
    for id_, which in owned:
        assert owners.setdefault(id_, which) == which
    assert len(owners) >= 100


def test_ids_of_any_text_are_kept(make_store, scope, opened):
    """Quotes, emoji, control characters and ten thousand characters are ids as any other."""
    store = make_store()
    for id_ in ("a'b\"c\\", "naïve 🙂", "line\nbreak", "nul\0", "x" * 10_000, "{a}:b:", "%s"):
        store.put(id_, scope=scope)
        assert store.get(id_, scope=scope).state == "done", id_
        assert store.delete(id_, scope=scope)


def test_addresses_name_stores_and_show_no_password():
    """A configuration and a command name a store by one word."""
    assert isinstance(store_of("redis://localhost"), RedisDedup)
    assert isinstance(store_of("memory:"), MemoryDedup)
    assert store_of("sqlite:a/b.db").path == "a/b.db"
    assert store_of("sqlite:///var/b.db").path == "/var/b.db"
    shown = [repr(store_of(url)) for url in ("redis://u:secret@h/0", "postgresql://u:secret@h/d")]
    shown += [repr(PostgresDedup("host=h password=secret"))]
    assert not [text for text in shown if "secret" in text]
    with pytest.raises(DeclarationError, match="address of a dedup store"):
        store_of("mysql://u:secret@h")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"id": "event-id"}, "by_header"),
        ({"lease": "10ms"}, "at least 1s"),
        ({"ttl": "5s"}, "longer than a lease"),
        ({"ttl": 5}, "no unit"),
        ({"on_outage": "park"}, "use 'wait' or 'continue'"),
    ],
)
def test_options_that_cannot_work_are_refused(options, text):
    """Each with what to write instead."""
    with pytest.raises(DeclarationError, match=text):
        MemoryDedup(**options)
