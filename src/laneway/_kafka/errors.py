"""Turns librdkafka's errors into laneway's."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from laneway.errors import AdminError, InDoubtError, MessageTooLargeError, ProduceError, TimestampRefusedError

__all__ = [
    "BrokerUnavailableError",
    "FencedError",
    "as_admin_error",
    "as_produce_error",
    "as_refusal",
    "is_auth_error",
    "text_of",
]

_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
_AUTH = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's public code for local errors begins with an underscore
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}
_IN_DOUBT = {
    KafkaError._PURGE_INFLIGHT,  # noqa: SLF001 - as above
    KafkaError._FATAL,  # noqa: SLF001 - as above
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.DUPLICATE_SEQUENCE_NUMBER,
}
_PASSING = {
    KafkaError._TRANSPORT,  # noqa: SLF001 - as above
    KafkaError._TIMED_OUT,  # noqa: SLF001 - as above
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
    KafkaError._RESOLVE,  # noqa: SLF001 - as above
    KafkaError.NOT_CONTROLLER,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
}
_EXPELLED = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.FENCED_INSTANCE_ID}


class BrokerUnavailableError(AdminError):
    """No broker answers, or it is not ready; waiting may help."""


class FencedError(AdminError):
    """The group removed this member: its partitions belong to others, and retrying does not help."""


def as_admin_error(error: KafkaException, trouble: str = "") -> AdminError:
    """The error of a failed request: permanent, or worth a retry."""
    if is_auth_error(error):
        return AdminError(text_of(error))
    inner = error.args[0] if error.args else None
    kind = FencedError if isinstance(inner, KafkaError) and inner.code() in _EXPELLED else BrokerUnavailableError
    return kind(f"{text_of(error)} ({trouble})" if trouble else text_of(error))


def as_refusal(what: str, error: KafkaException) -> AdminError:
    """The error of a failed topic change: the broker was lost meanwhile, or refused."""
    inner = error.args[0] if error.args else None
    is_passing = isinstance(inner, KafkaError) and inner.code() in _PASSING
    return (BrokerUnavailableError if is_passing else AdminError)(f"cannot {what}: {text_of(error)}")


def as_produce_error(error: Any, trouble: str = "") -> ProduceError:
    """The error of a failed delivery.

    Args:
        error: librdkafka's.
        trouble: what is known beside it.
    """
    code, text = error.code(), f"{error.name()}: {error.str()}" + (f" ({trouble})" if trouble else "")
    if code in _TOO_LARGE:
        return MessageTooLargeError(f"{text}; raise max.message.bytes of the topic")
    if code == KafkaError._PURGE_QUEUE:  # noqa: SLF001 - as above
        return ProduceError(f"the message was not sent: {trouble or text}")
    if code in _IN_DOUBT:
        return InDoubtError(f"the brokers may or may not have the message: {trouble or text}")
    return (TimestampRefusedError if code == KafkaError.INVALID_TIMESTAMP else ProduceError)(text)


def is_auth_error(error: Any) -> bool:
    """Whether the broker refused the login or a permission; waiting does not help."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    return isinstance(error, KafkaError) and error.code() in _AUTH


def text_of(error: BaseException) -> str:
    """A Kafka exception as one readable line."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
    return f"{inner.name()}: {inner.str()}" if isinstance(inner, KafkaError) else str(inner)
