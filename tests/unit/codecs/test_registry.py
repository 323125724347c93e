"""SchemaRegistry: what is asked how often, and what follows when the registry does not answer."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from laneway.codecs import Avro, Json, SchemaRegistry
from laneway.errors import CodecError, DeclarationError, SchemaRegistryError
from support.waiting import eventually


class Stub:
    """An HTTP server on loopback that answers as a test says."""

    def __init__(self):
        self.status, self.requests, self.schema = 200, [], '"long"'
        self.hangs = threading.Event()
        self.hangs.set()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                stub.requests.append((self.path, dict(self.headers)))
                stub.hangs.wait(10)
                body = json.dumps({"schema": stub.schema} if stub.status == 200 else {"error_code": 1, "message": "no"})
                self.send_response(stub.status)
                self.end_headers()
                self.wfile.write(body.encode())

            do_POST = do_GET  # noqa: N815 - the name that the server calls

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def stub():
    made = Stub()
    yield made
    made.hangs.set()
    made.server.shutdown()
    made.server.server_close()


def test_a_schema_is_asked_for_once(stub):
    """An id is requested at its first value; after that the registry may be down."""
    codec = Avro(registry=SchemaRegistry(stub.url))
    assert codec.decode(b"\0\0\0\0\1\2") == 1
    stub.status = 503
    assert [codec.decode(b"\0\0\0\0\1\4") for _ in range(3)] == [2, 2, 2]
    assert len(stub.requests) == 1


def test_an_unknown_id_is_the_record_s_fault(stub):
    """What the registry does not know is undecodable, and is not asked for again for each record."""
    stub.status = 404
    codec = Avro(registry=SchemaRegistry(stub.url))
    for _ in range(3):
        with pytest.raises(CodecError, match="knows no schema 1"):
            codec.decode(b"\0\0\0\0\1\2")
    assert len(stub.requests) == 1


@pytest.mark.parametrize("status", [500, 503, 429, 401])
def test_an_outage_is_not_the_record_s_fault(stub, status):
    """Any other answer says nothing about the record; who asks again at once is answered without a request."""
    stub.status = status
    codec = Avro(registry=SchemaRegistry(stub.url))
    for _ in range(5):
        with pytest.raises(SchemaRegistryError) as caught:
            codec.decode(b"\0\0\0\0\1\2")
        assert 0 < caught.value.retry_after <= 5
    assert len(stub.requests) == 1
    stub.status = 200

    def is_read():
        with suppress(SchemaRegistryError):
            return codec.decode(b"\0\0\0\0\1\2") == 1

    eventually(is_read, timeout=5)


def test_a_registry_that_hangs_is_given_up(stub):
    """A request has a time limit."""
    stub.hangs.clear()
    codec = Avro(registry=SchemaRegistry(stub.url, timeout=0.1))
    with pytest.raises(SchemaRegistryError, match="does not answer"):
        codec.decode(b"\0\0\0\0\1\2")


def test_an_event_loop_is_never_blocked(stub):
    """On a loop the first value of an id comes back at once with the request to try again, and one request is made."""
    stub.hangs.clear()
    codec = Avro(registry=SchemaRegistry(stub.url))

    async def scene():
        for _ in range(3):
            with pytest.raises(SchemaRegistryError, match="not answered yet"):
                codec.decode(b"\0\0\0\0\1\2")
        stub.hangs.set()
        while True:
            try:
                return codec.decode(b"\0\0\0\0\1\2")
            except SchemaRegistryError as error:
                await asyncio.sleep(error.retry_after)

    assert asyncio.run(asyncio.wait_for(scene(), 10)) == 1
    assert len(stub.requests) == 1


def test_logins(stub):
    """User and password, and tokens, are sent; neither is shown."""
    basic = SchemaRegistry(stub.url, auth="shop:secret")
    Avro(registry=basic).decode(b"\0\0\0\0\1\2")
    Avro(registry=SchemaRegistry(stub.url, auth="bearer t0ken")).decode(b"\0\0\0\0\1\2")
    sent = [{name.lower(): value for name, value in headers.items()} for _, headers in stub.requests]
    assert [headers["authorization"].split()[0] for headers in sent] == ["Basic", "Bearer"]
    assert "secret" not in repr(basic)
    assert "pw" not in repr(SchemaRegistry("http://u:pw@host:1"))


@pytest.mark.parametrize("url", ["registry:8081", "ftp://x", ""])
def test_a_wrong_address_is_refused(url):
    """The error says what an address looks like."""
    with pytest.raises(DeclarationError, match="http://host:port"):
        SchemaRegistry(url)


def test_schemas_are_registered_only_on_request():
    """Without register=True an unknown schema is an error that says what to do."""
    known = SchemaRegistry(f"mock://{uuid.uuid4().hex}")
    with pytest.raises(CodecError, match="register=True"):
        Json(dict[str, int], registry=known).for_topic("counts").encode({"a": 1})
    codec = Json(dict[str, int], registry=known, register=True).for_topic("counts")
    data = codec.encode({"a": 1})
    assert data[:1] == b"\0"
    assert codec.decode(data) == {"a": 1}


def test_the_codec_of_another_kind_of_schema():
    """A schema of another kind is an error that names both."""
    known = SchemaRegistry(f"mock://{uuid.uuid4().hex}")
    data = Json(int, registry=known, register=True).for_topic("counts").encode(1)
    with pytest.raises(CodecError, match="is JSON; the codec of this topic is AVRO"):
        Avro(registry=known).decode(data)
