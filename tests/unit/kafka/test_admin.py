"""What is asked of a cluster, when it answers and when it does not."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from laneway._kafka import Admin, BrokerUnavailableError
from laneway.errors import AdminError


class Client:
    """Answers, or reports what is wrong when it is polled, as librdkafka does."""

    def __init__(self, told):
        self.told, self.is_away, self.news = told, False, []

    def list_topics(self, *_, timeout):
        if self.is_away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "nobody"))
        return self

    topics, brokers = {}, {1: None}

    def poll(self, _):
        while self.news:
            self.told(self.news.pop())


@pytest.fixture
def admin(monkeypatch):
    made = Admin({"bootstrap.servers": "127.0.0.1:1"})
    monkeypatch.setattr(made, "_client", Client(made._noticed))
    return made


def test_a_refused_login_is_reported_as_such(admin):
    """The request itself finds no broker to ask."""
    admin._client.is_away, admin._client.news = True, [KafkaError(KafkaError._AUTHENTICATION, "wrong password")]
    with pytest.raises(AdminError, match="wrong password") as raised:
        admin.brokers(0.1)
    assert not isinstance(raised.value, BrokerUnavailableError)


def test_a_refusal_is_forgotten_when_brokers_have_answered(admin):
    """Once, a login refused during a rotation of passwords ended the run at the next absence of a broker."""
    admin._client.news = [KafkaError(KafkaError._AUTHENTICATION, "wrong password")]
    assert admin.brokers(0.1) == 1
    admin._client.is_away = True
    with pytest.raises(BrokerUnavailableError, match="nobody"):
        admin.brokers(0.1)


def test_the_lag_is_asked_for_with_one_client(admin, monkeypatch):
    """Once, each look made a client, and a run grew for as long as it lasted."""
    made = []

    class Offsets:
        def __init__(self, options, group):
            made.append(group)

        def committed(self, topic, partitions):
            return dict.fromkeys(partitions, 3)

    monkeypatch.setattr("laneway._kafka.admin.GroupOffsets", Offsets)
    monkeypatch.setattr(admin, "partitions", lambda topic: [0, 1])
    monkeypatch.setattr(admin, "ends", lambda topic, partitions: dict.fromkeys(partitions, 5))
    for _ in range(3):
        assert admin.lag("billing", "orders") == {0: (3, 5), 1: (3, 5)}
    admin.lag("mail", "orders")

    assert made == ["billing", "mail"]


@pytest.mark.parametrize(
    ("code", "is_passing"),
    [
        (KafkaError._TRANSPORT, True),
        (KafkaError._TIMED_OUT, True),
        (KafkaError.NOT_CONTROLLER, True),
        (KafkaError.POLICY_VIOLATION, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_a_broker_that_goes_away_while_it_creates_a_topic_is_waited_for(admin, code, is_passing):
    """A run that has just begun once ended with it; what the broker refuses is reported at once."""
    answer = Future()
    answer.set_exception(KafkaException(KafkaError(code, "reset")))
    admin._client.create_topics = lambda topics, **_: {topics[0].topic: answer}
    with pytest.raises(AdminError, match="cannot create topic orders") as raised:
        admin.create("orders", 3)
    assert isinstance(raised.value, BrokerUnavailableError) is is_passing
