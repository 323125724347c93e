"""Messages until they are safe."""

from __future__ import annotations

import pytest

from laneway._core.decide import is_hopeless
from laneway._core.events import EventEmitter
from laneway._core.messages import PendingMessage
from laneway._core.outbox import Outbox
from laneway.errors import MessageTooLargeError, ProduceError
from laneway.observe import Tally
from support.core import FakeSender, Noted, make_route

ENCODED = ("out", b"k", b"value", [("h", b"1")], 3, 99)


class Desk:
    """An outbox and its owner, who repeats what failed unless *gives_up* or *replaces* says otherwise."""

    def __init__(self, sender, *, listener=None, gives_up=lambda message, error: False, replaces=lambda message: False):
        self.tally = Tally()
        self.outbox = Outbox(sender, self.tally, EventEmitter(make_route(), self.tally, listener))
        self.landed, self.errors = [], []
        self._gives_up, self._replaces = gives_up, replaces

    def send(self, encoded=ENCODED):
        message = PendingMessage(encoded)
        self.outbox.send(message)
        return message

    def tick(self, now):
        for message, error in self.outbox.poll(now):
            if error is None:
                self.landed.append(message)
                self.outbox.over(message)
                continue
            self.errors.append(error)
            if self._gives_up(message, error):
                self.outbox.over(message)
            elif self._replaces(message):
                self.outbox.replace(message, now)
            else:
                self.outbox.repeat(message, error, now)
        self.outbox.send_due(now)


def make(answers=(), **rest):
    sender = FakeSender(answers)
    desk = Desk(sender, **rest)
    return desk, desk.outbox, sender, desk.tally


def test_a_message_lands_when_it_is_acknowledged():
    """Not when it is handed over, and once only."""
    desk, outbox, sender, tally = make()
    message = desk.send()

    assert not desk.landed
    assert (outbox.pending, outbox.size) == (1, 6)
    desk.tick(0.0)
    desk.tick(1.0)
    assert desk.landed == [message]
    assert (outbox.pending, outbox.size, tally.produced, tally.undelivered) == (0, 0, 1, 0)
    assert sender.sent == [
        {"topic": "out", "key": b"k", "value": b"value", "headers": [("h", b"1")], "partition": 3, "timestamp": 99}
    ]


def test_a_failed_message_is_repeated_with_growing_pauses():
    """A quarter of a second, doubled each time, never more than five seconds, and for ever."""
    desk, outbox, sender, tally = make([ProduceError("down")] * 30)
    desk.send()
    now, pauses = 0.0, []
    for _ in range(30):
        desk.tick(now)
        assert outbox.trouble == "cannot write to out: down"
        pauses.append(outbox.next_wake - now)
        desk.tick(now + pauses[-1] / 2)
        assert len(sender.sent) == len(pauses)
        now = outbox.next_wake
        desk.tick(now)

    desk.tick(now)
    assert pauses[:7] == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert max(pauses) == 5.0
    assert len(desk.landed) == 1
    assert (outbox.trouble, outbox.next_wake, tally.undelivered) == (None, None, 30)


def test_answers_are_looked_for_less_often_the_longer_none_comes():
    """At once while they come; a broker that is away is not asked five hundred times a second."""
    desk, outbox, sender, _ = make()
    sender.is_silent = True
    desk.send()
    pauses = []
    for now in (7.0, 7.005, 7.1, 7.3, 8.0, 70.0):
        desk.tick(now)
        pauses.append(round(outbox.pause, 4))
    assert pauses == [0.002, 0.002, 0.01, 0.03, 0.05, 0.05]

    sender.is_silent = False
    desk.tick(70.1)
    assert (len(desk.landed), outbox.pause) == (1, 0.002)
    desk.send()
    desk.tick(99.0)
    assert outbox.pause == 0.002


def test_a_message_that_is_given_up_is_not_repeated():
    """It is neither sent again nor reported as landed."""
    desk, outbox, sender, _ = make([MessageTooLargeError("x")], gives_up=lambda message, error: True)
    desk.send()
    desk.tick(0.0)
    desk.tick(99.0)

    assert (desk.landed, len(sender.sent), outbox.pending, outbox.size) == ([], 1, 0, 0)


def test_a_message_may_be_replaced_before_it_is_repeated():
    """What is too large is sent again in another form."""

    def shorten(message):
        message.encoded = ("out", b"k", b"v", [], None, None)
        return True

    desk, outbox, sender, _ = make([MessageTooLargeError("x")], replaces=shorten)
    desk.send()
    desk.tick(0.0)
    desk.tick(1.0)

    assert sender.acked[0]["headers"] == []
    assert len(desk.landed) == 1
    assert outbox.size == 0


def test_one_that_waits_for_another_is_sent_after_it():
    """Not before the first one is over, however often it is repeated."""
    desk, outbox, sender, _ = make([ProduceError("down")])
    first, second = PendingMessage(ENCODED), PendingMessage(("out", b"k", b"second", [], 3, 99))
    first.next = second
    outbox.send(first)
    desk.tick(0.0)
    desk.tick(0.3)
    assert [message["value"] for message in sender.sent] == [b"value", b"value"]
    desk.tick(0.4)
    desk.tick(0.5)
    assert desk.landed == [first, second]


def test_what_is_withdrawn_is_not_sent_again():
    """A message that waits for its next try; one that is on its way is answered as usual."""
    desk, outbox, sender, _ = make([ProduceError("down")])
    message = desk.send()
    desk.tick(0.0)
    assert outbox.waiting() == [message]
    outbox.withdraw([message])
    outbox.over(message)
    desk.tick(99.0)
    assert (len(sender.sent), outbox.pending, outbox.next_wake) == (1, 0, None)


def test_a_client_that_refuses_at_once_answers_the_usual_way():
    """Once, a header that is not bytes raised out of the outbox and ended the run."""
    desk, outbox, sender, _ = make(gives_up=lambda message, error: True)

    def refuse(*_args, **_kwargs):
        raise TypeError("headers")

    sender.send = refuse
    desk.send()
    desk.tick(0.0)

    assert [TypeError] == [type(error) for error in desk.errors]
    assert outbox.pending == 0


def test_an_idle_outbox_leaves_the_sender_alone():
    """A producer is made at the first message, not before."""
    desk, _, sender, _ = make()
    sender.poll = lambda: pytest.fail("polled")
    desk.tick(0.0)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MessageTooLargeError(), True),
        (TypeError(), True),
        (ValueError(), True),
        (ProduceError(), False),
        (OSError(), False),
    ],
)
def test_some_errors_are_hopeless(error, expected):
    """Repeating the same message helps against everything that may pass."""
    assert expected == is_hopeless(error)


class Requests:
    """A broker that judges whole requests: one message that is too large spoils all that came with it."""

    def __init__(self, limit):
        self.limit, self.request, self.taken = limit, [], []

    def send(self, topic, *, value, delivered, **rest):
        self.request.append((value, delivered))

    def poll(self):
        request, self.request = self.request, []
        is_refused = any(len(value) > self.limit for value, _ in request)
        self.taken += [] if is_refused else [value for value, _ in request]
        for _, delivered in request:
            delivered(MessageTooLargeError("request") if is_refused else None)


def test_a_message_that_is_too_large_does_not_spoil_its_neighbours():
    """Once, every copy of a request was made smaller, or its record parked, because one in it was too large."""
    sender = Requests(limit=10)
    desk = Desk(sender, gives_up=lambda message, error: True)

    def send(value):
        desk.send(("out", b"k", value, [], 0, None))

    for value in (b"1", b"2" * 11, b"3"):
        send(value)
    for now in range(12):
        desk.tick(float(now))
        if now == 2:
            send(b"4")
    assert (sorted(message.encoded[2] for message in desk.landed), len(desk.errors)) == ([b"1", b"3", b"4"], 1)
    assert sorted(sender.taken) == [b"1", b"3", b"4"]
    assert (desk.outbox.pending, desk.outbox.size) == (0, 0)
    send(b"5")
    send(b"6")
    desk.tick(20.0)
    assert [message.encoded[2] for message in desk.landed[-2:]] == [b"5", b"6"]  # together again


def to(topic):
    """A message for a topic."""
    return (topic, *ENCODED[1:])


def late(outbox):
    """What waits for long: topic, count and reason."""
    return [(each.topic, each.count, each.reason) for each in outbox.late]


def test_what_is_not_acknowledged_for_five_seconds_is_said():
    """With topic, count and reason, long before the client gives up; and no longer when it has arrived."""
    sender, noted, asked = FakeSender(), Noted(), []
    sender.is_silent = True
    desk = Desk(sender, listener=noted)
    outbox = desk.outbox

    def diagnose(topic):
        asked.append(topic)
        return "there is no such topic"

    outbox.diagnose = diagnose
    for number in range(3):
        desk.send(to("errors"))
        desk.tick(100.0 + number)
    desk.send(to("other"))
    desk.tick(103.9)
    assert (asked, late(outbox)) == ([], [])
    desk.tick(104.9)
    assert (set(asked), late(outbox)) == ({"errors"}, [])
    desk.tick(105.9)
    assert late(outbox) == [("errors", 2, "there is no such topic")]
    assert noted.notes == [
        "2 copies or messages for errors not acknowledged for 6s: there is no such topic; the records wait"
    ]
    desk.tick(112.0)
    assert late(outbox) == [("errors", 3, "there is no such topic"), ("other", 1, "there is no such topic")]
    assert len(noted.notes) == 1
    sender.is_silent = False
    desk.tick(113.0)
    desk.tick(114.0)
    assert (late(outbox), outbox.pending) == ([], 0)


def test_a_reason_that_is_found_later_is_reported_at_once():
    """It does not wait until the notice is due again."""
    sender, noted, found = FakeSender(), Noted(), []
    sender.is_silent = True
    desk = Desk(sender, listener=noted)
    desk.outbox.diagnose = lambda _topic: "".join(found)
    desk.send(to("errors"))
    for second in range(100, 108):
        desk.tick(float(second))
    assert [": there is no" in note for note in noted.notes] == [False]
    found.append("there is no such topic")
    for second in range(108, 111):
        desk.tick(float(second))
    assert [": there is no" in note for note in noted.notes] == [False, True]


def test_what_comes_later_is_not_taken_for_old():
    """After a time in which nothing was sent, and while messages come and go all the time."""
    sender = FakeSender()
    desk = Desk(sender)
    outbox = desk.outbox
    for second in range(100):
        sender.is_silent = second % 2 == 0
        desk.send(to("errors"))
        desk.tick(float(second))
        assert late(outbox) == []
    desk.tick(1000.0)
    sender.is_silent = True
    desk.send(to("errors"))
    desk.tick(2000.0)
    assert late(outbox) == []
