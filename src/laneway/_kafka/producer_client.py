"""ProducerClient: one librdkafka producer that many threads use, replaced when it cannot continue."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from laneway._kafka.client import quiet
from laneway._kafka.encoded import RefusedMessage
from laneway._kafka.errors import as_produce_error, is_auth_error, text_of
from laneway._kafka.topic_trouble import TopicLook, trouble_of
from laneway.errors import ProduceError
from laneway.observe import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from laneway._kafka.encoded import Answered, Encoded

__all__ = ["ProducerClient"]

_log = logger("kafka")

_OWN = 128  # messages after which a sending thread handles answers itself
_HURRY = 0.001  # seconds; the client's threads need a moment to notice the request
_QUIET = 0.004  # seconds without a sending thread after which the client's own thread handles answers
_SLICE = 0.01  # seconds of one poll: a burst that begins meanwhile has its first answers handled on another thread
_YIELD = 0.0003  # seconds that a sending thread leaves to the thread that handles answers
_FULL = 0.05  # seconds to wait for room in the buffer before looking again
_MOST_WAITING = 10_000  # messages of an event loop that may wait for room, before it is blocked
_CLOSED = "the producer is closed"
_DISCARD = 5.0  # seconds to collect the answers of a client that is thrown away


class ProducerClient:
    """Sends messages and reports what became of each. Any thread may call it. Create it after a fork.

    Answers are handled by the thread that sends while it sends much, and by a thread of the client otherwise: each
    callback of librdkafka takes the interpreter's lock for itself, so a thread that only handled answers would wait
    5 ms for each of them beside a thread that computes.

    After a fatal error the librdkafka client is thrown away. Its messages fail: those that were never sent say so, the
    others are in doubt.

    Args:
        options: librdkafka options, as `ClusterSettings.producer_options` gives them.
        has_thread: whether a thread handles answers; otherwise the owner calls `poll`, and they are handled there.
    """

    def __init__(self, options: Mapping[str, Any], *, has_thread: bool = True) -> None:
        self._options = quiet(options)
        self.replaced = 0
        """How often a fatal error made it throw its librdkafka client away."""
        self.trouble = ""
        """The last connection error or refused login; empty when the brokers answered since."""
        self._producer = self._created()
        self._lock = threading.Lock()
        self._discarded: deque[tuple[Producer, str]] = deque()
        self._failed: deque[tuple[str, Any, Answered]] = deque()
        self._waiting: deque[tuple[Encoded, Answered]] = deque()
        self._topics = TopicLook()
        self._since_poll = 0
        self._sent_at = 0.0
        self._is_handling = False
        self._is_closed = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        if has_thread:
            self._thread = threading.Thread(target=self._work, name="laneway-producer", daemon=True)
            self._thread.start()

    def __len__(self) -> int:
        """How many messages have no answer yet."""
        return len(self._producer) + len(self._waiting) + sum(len(old) for old, _ in list(self._discarded))

    def send(self, message: Encoded, answered: Answered) -> None:
        """Send a message; waits while the buffer is full, but on an event loop only when too many wait already."""
        if self._is_closed:
            raise ProduceError(_CLOSED)
        if self._waiting and not self._has_turn(message, answered):
            return
        topic, key, value, headers, partition, timestamp = message
        pairs = headers if type(headers) is list else list(headers)
        callback = partial(self._answered, topic, answered)
        where = -1 if partition is None else partition
        when = timestamp if timestamp is not None and timestamp > 0 else 0
        while True:
            producer = self._producer
            try:
                producer.produce(topic, value, key, where, callback, timestamp=when, headers=pairs)
                break
            except BufferError:
                if not self._has_room(message, answered):
                    return
            except KafkaException as error:
                if not self._is_fatal(producer, error):
                    self._refused(topic, error, answered)
                    return
        self._sent(1)

    def send_all(self, messages: Iterable[Encoded], answered: Callable[[Any, Any], None]) -> int:
        """Send many messages with one callback for all, and give their number; waits while the buffer is full.

        Args:
            messages: what to send.
            answered: receives an error or None, and an object with topic and key, for each. An error of librdkafka is
                to be passed to `failed`; a `ProduceError` is final.
        """
        count, producer = 0, self._producer
        produce = producer.produce
        for topic, key, value, headers, partition, timestamp in messages:
            while True:
                try:
                    if not headers and timestamp is None:  # keywords cost a tenth of the call
                        produce(topic, value, key, -1 if partition is None else partition, answered)
                        break
                    pairs = headers if type(headers) is list else list(headers)
                    where = -1 if partition is None else partition
                    produce(topic, value, key, where, answered, timestamp=timestamp or 0, headers=pairs)
                    break
                except BufferError:
                    if self._is_closed:
                        answered(ProduceError(_CLOSED), RefusedMessage(topic, key))
                        break
                    self._sent_at = time.monotonic()
                    self._poll(_FULL)
                except KafkaException as error:
                    if not self._is_fatal(producer, error):
                        answered(as_produce_error(error.args[0]), RefusedMessage(topic, key))
                        break
                producer = self._producer
                produce = producer.produce
            count += 1
            if count & 511 == 0:
                self._sent(512)
        # The last ones go out at once, and this thread handles no further answers.
        self._sent(count & 511)
        self._flush(producer, _HURRY)
        self._sent_at = 0.0
        return count

    def failed(self, topic: str, error: Any, answered: Answered) -> None:
        """Turn an error of librdkafka into one that says more, and pass it on later. For callbacks of `send_all`."""
        self._failed.append((topic, error, answered))
        self._wake.set()

    def flush(self, timeout: float) -> int:
        """Wait until every message has its answer, at most *timeout* seconds; returns how many have none."""
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            self._flush(self._producer, max(0.0, min(left, 0.2)))
            if self._thread is None:
                self._tend()
            else:
                self._wake.set()
            if not self._is_pending or left <= 0:
                return len(self)

    def poll(self) -> None:
        """Handle the answers that have come."""
        self._poll(0)
        self._tend()

    def topics(self, timeout: float) -> dict[str, str]:
        """The topics of the cluster, each with what is wrong with it.

        Raises:
            ProduceError: no broker answered in time, or it refused.
        """
        try:
            found = self._producer.list_topics(timeout=timeout).topics
        except KafkaException as error:
            raise ProduceError(self.trouble or text_of(error)) from error
        self.trouble = ""
        return {name: trouble_of(state) for name, state in found.items()}

    def close(self, timeout: float) -> None:
        """Flush, and fail what has no answer by then."""
        self.flush(timeout)
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_DISCARD + 1)
        why = "the producer was closed before the brokers answered"
        while self._waiting:
            message, answered = self._waiting.popleft()
            answered(ProduceError(f"not sent to {message.topic}: {why}"), -1, -1)
        self._collect(self._producer, why)

    @property
    def _is_pending(self) -> bool:
        return bool(len(self) or self._failed or self._is_handling)

    def _poll(self, timeout: float) -> None:
        producer = self._producer
        try:
            producer.poll(timeout)
        except KafkaException as error:
            self._ended(producer, error)

    def _flush(self, producer: Producer, timeout: float) -> None:
        try:
            producer.flush(timeout)
        except KafkaException as error:
            self._ended(producer, error)

    def _ended(self, producer: Producer, error: KafkaException) -> None:
        """Handling answers raised a fatal error of the client, which ends it."""
        if not error.args[0].fatal():
            raise error
        self._replace(producer, error.args[0].str())

    def _sent(self, count: int) -> None:
        """A thread has sent messages: now and then it handles answers, too."""
        if self._is_closed:
            self._collect(self._producer, _CLOSED)  # it was closed after the sender had looked
        if self._thread is None:
            return
        if not self._wake.is_set():
            self._wake.set()
        self._since_poll += count
        if self._since_poll < _OWN:
            return
        self._since_poll = 0
        self._sent_at = time.monotonic()
        if self._is_handling:
            time.sleep(_YIELD)
        self._poll(0)

    def _has_turn(self, message: Encoded, answered: Answered) -> bool:
        """Whether a message may be sent now although others wait for room; if not, it was put behind them."""
        while self._waiting:
            if not self._has_room(message, answered):
                return False
        return True

    def _has_room(self, message: Encoded, answered: Answered) -> bool:
        """Wait for room in the buffer; False when the message was put aside instead, because this is an event loop."""
        if len(self._waiting) < _MOST_WAITING and _is_on_event_loop():
            self._waiting.append((message, answered))
            self._wake.set()
            return False
        if self._is_closed:
            raise ProduceError(_CLOSED)
        self._poll(_FULL)
        return True

    def _created(self) -> Producer:
        try:
            return Producer({**self._options, "error_cb": self._noticed})
        except KafkaException as error:
            raise ProduceError(f"the client of a producer cannot be made: {text_of(error)}") from error

    def _is_fatal(self, producer: Producer, error: KafkaException) -> bool:
        """Whether the client refused a message because of a fatal error; then there is a new one now."""
        if error.args[0].code() != KafkaError._FATAL:  # noqa: SLF001 - public, see errors
            return False
        self._replace(producer, error.args[0].str())
        return True

    def _replace(self, old: Producer, why: str) -> None:
        with self._lock:
            if self._producer is not old:
                return  # another thread was faster
            self.replaced += 1
            self._discarded.append((old, f"a fatal error ended the producer's client: {why}"))
            self._producer = self._created()
        _log.warning("a fatal error ended the client of a producer, and a new one takes its place: %s", why)
        self._wake.set()

    def _refused(self, topic: str, error: KafkaException, answered: Answered) -> None:
        """A message was refused at once: too large for the client, or an unknown partition."""
        if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001 - public, see errors
            self.failed(topic, error.args[0], answered)
        else:
            answered(as_produce_error(error.args[0]), -1, -1)

    def _answered(self, topic: str, answered: Answered, error: Any, message: Any) -> None:
        if error is None:
            answered(None, message.partition(), message.offset())
        else:
            self.failed(topic, error, answered)

    def _noticed(self, error: Any) -> None:
        """An error of a client as a whole; no request may be made inside this callback. Fatal ones raise in `poll`."""
        if is_auth_error(error) or error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - public, see errors
            self.trouble = f"{error.name()}: {error.str().partition(' (after ')[0]}"

    def _work(self) -> None:
        """Handle answers while no sending thread does, and whatever must not be done inside a callback."""
        while not self._is_closed:
            self._tend()
            if not self._is_pending:
                self._wake.clear()
                if not self._is_pending:
                    self._wake.wait(1.0)
                    self._poll(0)  # errors of the client itself
            elif time.monotonic() - self._sent_at < _QUIET:
                time.sleep(_QUIET / 2)
            else:
                self._is_handling = True
                self._poll(_SLICE)
                self._is_handling = False
        self._report_failed()

    def _tend(self) -> None:
        """Do what must not be done inside a callback."""
        while self._discarded:
            self._collect(*self._discarded[0])
            self._discarded.popleft()
        if self._waiting:
            self._send_waiting()
        if self._failed:
            self._report_failed()

    def _send_waiting(self) -> None:
        while self._waiting:
            message, answered = self._waiting[0]
            producer = self._producer
            try:
                producer.produce(
                    message.topic,
                    message.value,
                    message.key,
                    -1 if message.partition is None else message.partition,
                    partial(self._answered, message.topic, answered),
                    timestamp=message.timestamp or 0,
                    headers=list(message.headers),
                )
            except BufferError:
                return
            except KafkaException as error:
                if self._is_fatal(producer, error):
                    continue
                self._refused(message.topic, error, answered)
            self._waiting.popleft()

    def _collect(self, producer: Producer, why: str) -> None:
        """End a librdkafka client: each of its messages has its answer afterwards."""
        end = time.monotonic() + _DISCARD
        producer.purge(in_queue=True, in_flight=False)
        self._flush(producer, 0)
        producer.purge(in_queue=True, in_flight=True)
        while len(producer) and time.monotonic() < end:
            self._flush(producer, 0.5)
        self._report_failed(why)

    def _report_failed(self, why: str = "") -> None:
        """Report failed messages, with the state of their topic, because "timed out" alone does not help.

        Not inside their callbacks: a request from a callback kills the process.
        """
        while self._failed:
            topic, error, answered = self._failed.popleft()
            found = self._topics.look(self._producer, topic) if error.code() in _TOPIC_TROUBLE else ""
            answered(as_produce_error(error, found or why), -1, -1)


_TOPIC_TROUBLE = {KafkaError._MSG_TIMED_OUT, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001 - public, see errors


def _is_on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
