"""TransactionalClient: one transaction after the other under one id; a client whose state is in doubt is replaced."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from laneway._kafka.errors import as_produce_error, text_of
from laneway.errors import InDoubtError, ProduceError, ProducerFencedError, TransactionAbortedError
from laneway.observe import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laneway._kafka.encoded import Encoded

__all__ = ["TransactionalClient"]

_log = logger("kafka")

_SLOW = 1.0  # seconds; a commit usually takes 1 to 5 ms
_BUFFER = 0.05  # seconds to wait for room in the buffer before looking again
_RENEW = 5.0  # seconds to initialise the id again at once, so that an unfinished transaction blocks no reader
_EXPIRES = 60_000  # milliseconds after which brokers abort a transaction, unless the options say more
_BROKEN = {"FAIL", "REQTMOUT"}
"""What log lines of librdkafka about a broken connection, or requests without an answer, begin with."""
_FENCED = {
    KafkaError._FENCED,  # noqa: SLF001 - librdkafka's public code for local errors begins with an underscore
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    # The id has expired, and another producer may have initialised it since.
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}


class TransactionalClient:
    """Writes messages in transactions. One thread at a time uses it. Create it after a fork.

    librdkafka repeats a commit whose connection broke, and reports success. The first request may still arrive, and
    would end the next transaction of the same producer epoch. So after any sign of trouble the librdkafka client is
    thrown away: the next one initialises the same id, which raises the epoch, and brokers refuse the late request.
    The signs are log lines about broken connections, errors of the client as a whole, and a slow commit. librdkafka
    writes the lines before it repeats the request, so they are there when the commit returns.

    Args:
        options: librdkafka options, as `producer_options` gives them.
        name: the transactional id.
        timeout: seconds that messages, and each request of a transaction, may take.
    """

    def __init__(self, options: Mapping[str, Any], name: str, timeout: float) -> None:
        self.name = name
        self.replaced = 0
        """How often a librdkafka client was thrown away."""
        expires = int(options.get("transaction.timeout.ms", _EXPIRES))
        self._options = {
            **options,
            "transactional.id": name,
            # librdkafka takes no shorter one than that of messages.
            "transaction.timeout.ms": max(expires, int(options.get("delivery.timeout.ms", 0))),
            # With the default of 100 each transaction waits that long for the end of the one before.
            "retry.backoff.ms": 5,
            "delivery.report.only.error": True,
            # A connection that broke while a request was on its way is only logged, at this level.
            "log_level": 6,
            "log.connection.close": True,
        }
        self._timeout = timeout
        self._producer: Producer | None = None
        self._trouble = ""
        """The first error that the librdkafka client has reported since it was made."""
        self._failures: list[ProduceError] = []
        """Why messages of the transaction were not written."""
        self._answered: Callable[[Any, Any], None]
        self._fenced = ""

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            ProducerFencedError: another producer has the id now.
            ProduceError: no broker could be asked; nothing was begun.
        """
        if self._fenced:
            raise ProducerFencedError(self._fenced)
        if self._producer is not None:
            fatal = self._serve(self._producer)
            if fatal is not None and _is_fenced(fatal):
                raise self._ended("", fatal, ProducerFencedError) from fatal
            if fatal is not None or self._trouble:
                self._discard(text_of(fatal) if fatal is not None else self._trouble)
        producer = self._producer = self._producer or self._initialised(self._timeout)
        failures = self._failures = []

        def answered(error: Any, _message: Any) -> None:
            # Not to `self._failures`: messages of an aborted transaction have their errors in a later one.
            failures.append(as_produce_error(error))

        self._answered = answered
        try:
            producer.begin_transaction()
        except KafkaException as error:
            raise self._ended(f"cannot begin a transaction: {text_of(error)}", error, ProduceError) from error

    def send(self, message: Encoded) -> None:
        """Send a message in the transaction; waits while the buffer is full.

        Raises:
            ProduceError: the message was refused, or an earlier one failed; the transaction is to be aborted.
        """
        topic, key, value, headers, partition, timestamp = message
        producer, failures = self._open(), self._failures

        end = time.monotonic() + self._timeout
        while True:
            if failures:
                raise failures[0]
            try:
                producer.produce(
                    topic,
                    value,
                    key,
                    -1 if partition is None else partition,
                    self._answered,
                    timestamp=timestamp or 0,
                    headers=list(headers),
                )
            except BufferError:
                if time.monotonic() > end:
                    raise ProduceError("no room in the buffer: the brokers do not take messages") from None
                self._serve(producer, _BUFFER)
            except KafkaException as error:
                fatal = self._serve(producer)  # perhaps an earlier message has failed: its error says more
                if error.args[0].code() == KafkaError._FATAL:  # noqa: SLF001 - public, see above
                    raise self._ended(f"not written: {text_of(error)}", fatal or error, ProduceError) from error
                raise (failures[0] if failures else as_produce_error(error.args[0])) from error
            else:
                self._serve(producer)
                return

    def commit(self) -> None:
        """Commit, and return when it is certain.

        Raises:
            TransactionAbortedError: nothing of the transaction counts.
            ProducerFencedError: another producer has the id now, and has aborted the transaction.
            InDoubtError: the transaction was either committed or aborted; it is unknown which.
        """
        producer = self._open()
        began = time.monotonic()
        try:
            producer.flush(self._timeout)
            if not self._failures:
                producer.commit_transaction(self._timeout + 1)
        except KafkaException as error:
            self._serve(producer)
            raise self._uncommitted(producer, error) from error
        except BaseException:
            self._discard("a commit was interrupted")
            raise
        if self._failures:
            raise self._aborted(self._failures[0]) from self._failures[0]
        self._serve(producer)
        seconds = time.monotonic() - began
        if self._trouble or seconds > _SLOW:
            # It is committed, but perhaps by the second of two requests.
            self._discard(self._trouble or f"a commit took {seconds:.1f} s")

    def abort(self) -> None:
        """Abort; nothing of the transaction counts.

        When the brokers do not answer, the transaction ends with the next one of the same id, or by its time-out.

        Raises:
            ProducerFencedError: another producer has the id now, and has aborted the transaction.
        """
        producer = self._producer
        if producer is None:
            self._renew()
            return
        try:
            producer.abort_transaction(self._timeout)
        except KafkaException as error:
            if _is_fenced(error):
                raise self._ended("", error, ProducerFencedError) from error
            self._discard(text_of(error))
            self._renew()
        else:
            self._serve(producer)

    def close(self) -> None:
        """Disconnect. An open transaction ends with the next one of the same id, or by its time-out."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def log(self, _level: int, _format: str, facility: str, _client: str, line: str) -> None:
        """Internal: a log line of librdkafka, which gives them inside `poll`, older ones first."""
        _log.debug("%s: %s", facility, line)
        if facility in _BROKEN:
            self._trouble = self._trouble or line

    def _open(self) -> Producer:
        if self._producer is None:
            raise ProduceError(self._fenced or "no transaction is open")
        return self._producer

    def _initialised(self, timeout: float) -> Producer:
        self._trouble = ""
        try:
            producer = Producer({**self._options, "error_cb": self._noticed}, logger=self)
            producer.list_topics(timeout=timeout)  # a connected client initialises ten times faster
            producer.init_transactions(timeout)
        except KafkaException as error:
            text = f"cannot initialise the transactional id {self.name}: {text_of(error)}"
            raise self._ended(text, error, ProduceError) from error
        # What happened before the first transaction cannot have cut one.
        self._serve(producer)
        self._trouble = ""
        return producer

    def _serve(self, producer: Producer, timeout: float = 0) -> KafkaException | None:
        """Take the answers, errors and log lines that have come; gives a fatal error of the client."""
        try:
            producer.poll(timeout)
        except KafkaException as error:
            return error
        return None

    def _uncommitted(self, producer: Producer, error: KafkaException) -> ProduceError:
        """The error for a commit that failed."""
        if error.args[0].txn_requires_abort() and not _is_fenced(error):
            try:
                # A transaction that was committed cannot be aborted, so success is certainty.
                producer.abort_transaction(self._timeout)
            except KafkaException as second:
                error = second
            else:
                if self._trouble:
                    self._discard(self._trouble)
                return TransactionAbortedError(
                    f"the transaction was aborted: {self._failures[0] if self._failures else text_of(error)}"
                )
        if not self._trouble and _is_fenced(error):
            return self._ended("", error, ProducerFencedError)
        text = f"the transaction was either committed or aborted, and it is unknown which: {text_of(error)}"
        found = self._ended(text, error, InDoubtError)
        self._renew()
        return found

    def _aborted(self, why: ProduceError) -> ProduceError:
        """Abort, because a message was not written."""
        try:
            self.abort()
        except ProducerFencedError as error:
            return error
        return TransactionAbortedError(f"the transaction was aborted: {why}")

    def _ended(self, text: str, error: KafkaException, kind: type[ProduceError]) -> ProduceError:
        """Discard the client because of an error, and give what to raise: always the same once it is fenced."""
        self._discard(text_of(error))
        if _is_fenced(error):
            self._fenced = (
                f"another producer has initialised the transactional id {self.name}, or a transaction was open for "
                f"longer than {self._options['transaction.timeout.ms'] / 1000:g} s, or not used for days; close this "
                f"producer, and use each id in one producer only"
            )
            if kind is not InDoubtError:
                return ProducerFencedError(f"the transaction is aborted: {self._fenced}")
        return kind(text)

    def _discard(self, why: str) -> None:
        """Throw the librdkafka client away."""
        old, self._producer = self._producer, None
        if old is None:
            return
        self.replaced += 1
        _log.warning("the client of the transactional id %s is replaced: %s", self.name, why)
        old.purge()

    def _renew(self) -> None:
        """Initialise the id again now if brokers answer; otherwise the next transaction does it."""
        if self._fenced:
            return
        try:
            self._producer = self._initialised(min(self._timeout, _RENEW))
        except ProduceError as error:
            _log.warning("%s; the next transaction tries it again", error)

    def _noticed(self, error: Any) -> None:
        """Brokers cannot be reached, or a request timed out."""
        self._trouble = self._trouble or f"{error.name()}: {error.str()}"


def _is_fenced(error: KafkaException) -> bool:
    return error.args[0].code() in _FENCED
