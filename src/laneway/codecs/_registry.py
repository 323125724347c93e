"""SchemaRegistry: schemas by id, and ids by schema, from a Confluent-compatible registry."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from laneway.errors import CodecError, DeclarationError, LanewayError, SchemaRegistryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway.codecs._wire_format import SchemaId

__all__ = ["RegisteredSchema", "SchemaRegistry"]

_PAUSE, _MOST_PAUSE = 0.1, 5.0  # seconds between requests while the registry does not answer
_SOON = 0.05  # seconds after which a question that is under way is answered, if the registry works
_AGAIN = 5.0  # seconds for which an id that the registry does not know is not asked for again
_NOT_FOUND, _CONFLICT, _INVALID = 404, 409, 422


class RegisteredSchema(NamedTuple):
    """A schema as the registry has it."""

    kind: str
    """``AVRO``, ``PROTOBUF`` or ``JSON``."""
    text: str
    references: tuple[RegisteredSchema, ...] = ()
    """The schemas that it names, each with its own."""


class SchemaRegistry:
    """A schema registry, for codecs: ``Avro(Order, registry=SchemaRegistry("http://registry:8081"))``.

    Each process makes its own connection, at the first request. Schemas and ids never change, so each is requested
    once; what is known keeps working while the registry is down.

    Args:
        url: its address; several addresses, separated by commas, are tried in turn.
        auth: ``"user:password"``, or ``"bearer <token>"``.
        timeout: seconds that a request may take. Without a limit a registry that hangs would block its callers forever.
        ca: file or folder with the certificate authorities to trust.
        certificate: file with a client certificate, for mutual TLS.
        key: file with its key.

    Example:
        >>> SchemaRegistry("https://registry:8081", auth="shop:secret")
        SchemaRegistry('https://registry:8081')
    """

    def __init__(
        self,
        url: str,
        *,
        auth: str = "",
        timeout: float = 5.0,
        ca: str = "",
        certificate: str = "",
        key: str = "",
    ) -> None:
        self._url = url
        self._auth = auth
        self._timeout = timeout
        self._files = (ca, certificate, key)
        self._check()
        self._reset()

    def schema(self, schema_id: SchemaId) -> RegisteredSchema:
        """The schema of an id.

        On the thread of an event loop it never blocks: what is not known yet is requested on a thread of its own.

        Raises:
            CodecError: the registry does not know the id.
            SchemaRegistryError: the registry does not answer, or has not answered yet; try again later.
        """
        found: RegisteredSchema = self._known(("schema", schema_id), lambda client: self._fetched(client, schema_id))
        return found

    def id_of(self, subject: str, schema: RegisteredSchema, *, register: bool) -> int:
        """The id of a schema under a subject.

        Args:
            subject: the name under which versions of the schema are kept, such as ``orders-value``.
            schema: the schema.
            register: whether to register it when the subject does not have it. It is checked first whether readers of
                the newest version can read it.

        Raises:
            CodecError: it is not registered, or not compatible.
            SchemaRegistryError: as for `schema`.
        """

        def ask(client: Any) -> int:
            return self._registered(client, subject, schema, register=register)

        found: int = self._known(("id", subject, schema, register), ask)
        return found

    def close(self) -> None:
        """Close the connection of this process; the next request makes a new one."""
        client = self._client
        self._reset()
        if client is not None:
            client.close()

    def __reduce__(self) -> tuple[Callable[..., SchemaRegistry], tuple[Any, ...]]:
        """Pickle the address and the login; each process has its own connection and memory."""
        return _made, (type(self), self._url, self._auth, self._timeout, *self._files)

    def __eq__(self, other: object) -> bool:
        """Equal when address and login are."""
        return isinstance(other, SchemaRegistry) and self.__reduce__()[1] == other.__reduce__()[1]

    def __hash__(self) -> int:
        """Equal registries hash alike."""
        return hash(self._url)

    def __repr__(self) -> str:
        """Without the login."""
        return f"{type(self).__name__}({_masked(self._url)!r})"

    def _check(self) -> None:
        for url in self._url.split(","):
            if urlsplit(url.strip()).scheme not in ("http", "https", "mock"):
                raise DeclarationError(
                    f"{_masked(url)!r} is not the address of a schema registry: write http://host:port or https://host:port"
                )
        if self._auth and ":" not in self._auth and not self._auth.startswith("bearer "):
            raise DeclarationError("auth of a schema registry is 'user:password' or 'bearer <token>'")

    def _reset(self) -> None:
        self._process = os.getpid()
        self._client: Any = None
        self._lock, self._asking = threading.Lock(), threading.Lock()
        self._answers: dict[Any, Any] = {}
        self._refusals: dict[Any, tuple[float, str]] = {}
        """Questions to which the answer is an error, and until when that is believed."""
        self._under_way: set[Any] = set()
        self._wait_until, self._failures, self._trouble = 0.0, 0, ""

    def _known(self, question: Any, ask: Callable[[Any], Any]) -> Any:
        if self._process != os.getpid():
            self._reset()  # a connection does not survive a fork
        if self._is_answered(question):
            return self._answers[question]
        if asyncio._get_running_loop() is None:  # noqa: SLF001 - the one that does not raise
            return self._asked(question, ask)
        self._ask_beside(question, ask)
        raise SchemaRegistryError(f"{self!r} was asked and has not answered yet", retry_after=_SOON)

    def _is_answered(self, question: Any) -> bool:
        """Whether the answer is known; raises it where it is an error."""
        if question in self._answers:
            return True
        now = time.monotonic()
        until, text = self._refusals.get(question, (0.0, ""))
        if now < until:
            raise CodecError(text)
        if now < self._wait_until:  # no caller waits for a registry that did not answer a moment ago
            raise SchemaRegistryError(self._trouble, retry_after=self._wait_until - now)
        return False

    def _ask_beside(self, question: Any, ask: Callable[[Any], Any]) -> None:
        with self._lock:
            if question in self._under_way:
                return
            self._under_way.add(question)

        def work() -> None:
            try:
                with suppress(LanewayError):  # it is kept for the next caller
                    self._asked(question, ask)
            finally:
                self._under_way.discard(question)

        threading.Thread(target=work, name="laneway-registry", daemon=True).start()

    def _asked(self, question: Any, ask: Callable[[Any], Any]) -> Any:
        """The answer; one request is under way at a time, because lanes that begin together ask the same."""
        with self._asking:
            if not self._is_answered(question):
                self._answers[question] = self._answer(question, ask)
        return self._answers[question]

    def _answer(self, question: Any, ask: Callable[[Any], Any]) -> Any:
        client_errors, network_error = _errors()
        try:
            found = ask(self._connected())
        except (network_error, OSError, client_errors.OAuthTokenError) as error:
            raise self._away(f"{self!r} does not answer: {error or type(error).__name__}") from error
        except client_errors.SchemaRegistryError as error:
            raise self._away(f"{self!r} answered {error.http_status_code}: {error.error_message}") from error
        except CodecError as error:
            self._refusals[question] = (time.monotonic() + _AGAIN, str(error))
            raise
        self._failures = 0
        return found

    def _away(self, text: str) -> SchemaRegistryError:
        pause = min(_MOST_PAUSE, _PAUSE * 2**self._failures)
        self._failures += 1
        self._trouble, self._wait_until = text, time.monotonic() + pause
        return SchemaRegistryError(text, retry_after=pause)

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = _client_of(self._url, self._auth, self._timeout, *self._files)
            return self._client

    def _fetched(self, client: Any, schema_id: SchemaId) -> RegisteredSchema:
        try:
            found = client.get_schema(schema_id) if isinstance(schema_id, int) else client.get_schema_by_guid(schema_id)
        except _errors()[0].SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                raise CodecError(f"{self!r} knows no schema {schema_id}") from error
            raise
        return self._whole(client, found)

    def _whole(self, client: Any, schema: Any) -> RegisteredSchema:
        references = tuple(
            self._whole(client, client.get_version(reference.subject, reference.version).schema)
            for reference in schema.references or ()
        )
        return RegisteredSchema(schema.schema_type or "AVRO", schema.schema_str, references)

    def _registered(self, client: Any, subject: str, schema: RegisteredSchema, *, register: bool) -> int:
        from confluent_kafka.schema_registry import Schema

        wanted = Schema(schema.text, schema.kind)
        found = self._looked_up(client, subject, wanted)
        if found is not None:
            return found
        if not register:
            raise CodecError(
                f"subject {subject} has no such schema in {self!r}; register it, or set register=True in the codec"
            )
        try:
            if client.get_versions(subject) and not client.test_compatibility(subject, wanted):
                raise CodecError(f"the schema is not compatible with the newest version of subject {subject}")
        except _errors()[0].SchemaRegistryError as error:
            if error.http_status_code != _NOT_FOUND:
                raise
        try:
            return int(client.register_schema(subject, wanted))
        except _errors()[0].SchemaRegistryError as error:
            if error.http_status_code not in (_CONFLICT, _INVALID):
                raise
            found = self._looked_up(client, subject, wanted)  # another process may have been faster
            if found is None:
                raise CodecError(f"subject {subject} refuses the schema: {error.error_message}") from error
            return found

    @staticmethod
    def _looked_up(client: Any, subject: str, wanted: Any) -> int | None:
        try:
            return int(client.lookup_schema(subject, wanted).schema_id)
        except _errors()[0].SchemaRegistryError as error:
            if error.http_status_code != _NOT_FOUND:
                raise
            return None


def _errors() -> tuple[Any, type[Exception]]:
    """The errors of the client, and of the network below it."""
    import httpx2
    from confluent_kafka.schema_registry import error

    return error, httpx2.HTTPError


def _client_of(url: str, auth: str, timeout: float, ca: str, certificate: str, key: str) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise DeclarationError(
            f"a schema registry needs more packages ({error}): pip install 'laneway[registry]'"
        ) from error
    options: dict[str, Any] = {"url": url, "timeout": timeout, "max.retries": 0}
    if auth.startswith("bearer "):
        options |= {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": auth.removeprefix("bearer ")}
        # The client requires both; registries outside of Confluent's cloud ignore them.
        options |= {"bearer.auth.logical.cluster": "-", "bearer.auth.identity.pool.id": "-"}
    elif auth:
        options["basic.auth.user.info"] = auth
    names = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
    options |= {name: path for name, path in zip(names, (ca, certificate, key), strict=True) if path}
    return SchemaRegistryClient.new_client(options)


def _made(
    kind: type[SchemaRegistry], url: str, auth: str, timeout: float, ca: str, certificate: str, key: str
) -> SchemaRegistry:
    return kind(url, auth=auth, timeout=timeout, ca=ca, certificate=certificate, key=key)


def _masked(url: str) -> str:
    """Addresses without the login that they may have."""
    return ",".join(
        part.partition("//")[0] + "//" + part.partition("//")[2].rpartition("@")[2] for part in url.split(",")
    )
