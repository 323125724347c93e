"""Messages until they are safe."""

from __future__ import annotations

import pytest

from laneway._core.outbox import Letter, Outbox, is_hopeless
from laneway.errors import MessageTooLargeError, ProduceError
from laneway.observe import Tally
from support.core import FakeSender

POSTED = ("out", b"k", b"value", [("h", b"1")], 3, 99)


class Told(Letter):
    """A letter that tells others of its fate."""

    def __init__(self, posted, landed, undeliverable):
        super().__init__(posted)
        self._landed, self._undeliverable = landed, undeliverable

    def landed(self):
        self._landed()

    def undeliverable(self, error):
        return self._undeliverable(self, error)


def make(answers=(), undeliverable=lambda letter, error: False):
    sender, tally, landed = FakeSender(answers), Tally(), []
    outbox = Outbox(sender, tally)
    letter = Told(POSTED, lambda: landed.append(True), undeliverable)
    return outbox, sender, tally, landed, letter


def test_a_letter_lands_when_it_is_acknowledged():
    """Not when it is handed over, and once only."""
    outbox, sender, tally, landed, letter = make()
    outbox.post(letter)

    assert not landed
    assert (outbox.pending, outbox.size) == (1, 6)
    outbox.tick(0.0)
    outbox.tick(1.0)
    assert landed == [True]
    assert (outbox.pending, outbox.size, tally.produced, tally.undelivered) == (0, 0, 1, 0)
    assert sender.sent == [
        {"topic": "out", "key": b"k", "value": b"value", "headers": [("h", b"1")], "partition": 3, "timestamp": 99}
    ]


def test_a_failed_letter_is_repeated_with_growing_pauses():
    """A quarter of a second, doubled each time, never more than five seconds, and for ever."""
    outbox, sender, tally, landed, letter = make([ProduceError("down")] * 30)
    outbox.post(letter)
    now, pauses = 0.0, []
    for _ in range(30):
        outbox.tick(now)
        assert outbox.trouble == "cannot write to out: down"
        pauses.append(outbox.next_wake - now)
        outbox.tick(now + pauses[-1] / 2)
        assert len(sender.sent) == len(pauses)
        now = outbox.next_wake
        outbox.tick(now)

    outbox.tick(now)
    assert pauses[:7] == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert max(pauses) == 5.0
    assert landed == [True]
    assert (outbox.trouble, outbox.next_wake, tally.undelivered) == (None, None, 30)


def test_answers_are_looked_for_less_often_the_longer_none_comes():
    """At once while they come; a broker that is away is not asked five hundred times a second."""
    outbox, sender, _, landed, letter = make()
    sender.is_silent = True
    outbox.post(letter)
    pauses = []
    for now in (7.0, 7.005, 7.1, 7.3, 8.0, 70.0):
        outbox.tick(now)
        pauses.append(round(outbox.pause, 4))
    assert pauses == [0.002, 0.002, 0.01, 0.03, 0.05, 0.05]

    sender.is_silent = False
    outbox.tick(70.1)
    assert (landed, outbox.pause) == ([True], 0.002)
    outbox.post(letter)
    outbox.tick(99.0)
    assert outbox.pause == 0.002


def test_a_letter_that_is_taken_care_of_is_not_repeated():
    """It is neither sent again nor said to have landed."""
    outbox, sender, _, landed, letter = make([MessageTooLargeError("x")], lambda letter, error: True)
    outbox.post(letter)
    outbox.tick(0.0)
    outbox.tick(99.0)

    assert (landed, len(sender.sent), outbox.pending, outbox.size) == ([], 1, 0, 0)


def test_a_letter_may_be_replaced_before_it_is_repeated():
    """What is too large is sent again in another form."""

    def shorten(letter, error):
        letter.posted = ("out", b"k", b"v", [], None, None)
        return False

    outbox, sender, _, landed, letter = make([MessageTooLargeError("x")], shorten)
    outbox.post(letter)
    outbox.tick(0.0)
    outbox.tick(1.0)
    outbox.tick(1.0)

    assert sender.acked[0]["headers"] == []
    assert landed == [True]
    assert outbox.size == 0


def test_a_client_that_refuses_at_once_answers_the_usual_way():
    """Once, a header that is not bytes raised out of the outbox and ended the run."""
    errors = []
    outbox, sender, *_, letter = make((), lambda letter, error: errors.append(error) or True)

    def refuse(*_args, **_kwargs):
        raise TypeError("headers")

    sender.send = refuse
    outbox.post(letter)
    outbox.tick(0.0)

    assert [TypeError] == [type(error) for error in errors]
    assert outbox.pending == 0


def test_an_idle_outbox_leaves_the_sender_alone():
    """A producer is made at the first message, not before."""
    outbox, sender, *_ = make()
    sender.poll = lambda: pytest.fail("polled")
    outbox.tick(0.0)


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

    def hurry(self):
        self.poll()


def test_a_message_that_is_too_large_does_not_spoil_its_neighbours():
    """Once, every copy of a request was made smaller, or its record parked, because one in it was too large."""
    sender, tally = Requests(limit=10), Tally()
    outbox, landed, hopeless = Outbox(sender, tally), [], []

    def post(value):
        def undeliverable(letter, error):
            hopeless.append(value)
            return True

        outbox.post(Told(("out", b"k", value, [], 0, None), lambda: landed.append(value), undeliverable))

    for value in (b"1", b"2" * 11, b"3"):
        post(value)
    for now in range(12):
        outbox.tick(float(now))
        if now == 2:
            post(b"4")
    assert (sorted(landed), hopeless) == ([b"1", b"3", b"4"], [b"2" * 11])
    assert sorted(sender.taken) == [b"1", b"3", b"4"]
    assert (outbox.pending, outbox.size) == (0, 0)
    post(b"5")
    post(b"6")
    outbox.tick(20.0)
    assert landed[-2:] == [b"5", b"6"]  # together again


def note(topic):
    """A letter whose end has no effect."""
    return Told((topic, *POSTED[1:]), lambda: None, lambda letter, error: False)


def late(outbox):
    """What waits for long: topic, count and reason."""
    return [(each.topic, each.count, each.reason) for each in outbox.late]


def test_what_is_not_acknowledged_for_five_seconds_is_said():
    """With topic, count and reason, long before the client gives up; and no longer when it has arrived."""
    sender, notices, asked = FakeSender(), [], []
    sender.is_silent = True
    outbox = Outbox(sender, Tally(), notices.append)

    def diagnose(topic):
        asked.append(topic)
        return "there is no such topic"

    outbox.diagnose = diagnose
    for number in range(3):
        outbox.post(note("errors"))
        outbox.tick(100.0 + number)
    outbox.post(note("other"))
    outbox.tick(103.9)
    assert (asked, late(outbox)) == ([], [])
    outbox.tick(104.9)
    assert (set(asked), late(outbox)) == ({"errors"}, [])
    outbox.tick(105.9)
    assert late(outbox) == [("errors", 2, "there is no such topic")]
    assert notices == [
        "2 copies or messages for errors not acknowledged for 6s: there is no such topic; the records wait"
    ]
    outbox.tick(112.0)
    assert late(outbox) == [("errors", 3, "there is no such topic"), ("other", 1, "there is no such topic")]
    assert len(notices) == 1
    sender.is_silent = False
    outbox.tick(113.0)
    outbox.tick(114.0)
    assert (late(outbox), outbox.pending) == ([], 0)


def test_what_comes_later_is_not_taken_for_old():
    """After a time in which nothing was sent, and while letters come and go all the time."""
    sender = FakeSender()
    outbox = Outbox(sender, Tally())
    for second in range(100):
        sender.is_silent = second % 2 == 0
        outbox.post(note("errors"))
        outbox.tick(float(second))
        assert late(outbox) == []
    outbox.tick(1000.0)
    sender.is_silent = True
    outbox.post(note("errors"))
    outbox.tick(2000.0)
    assert late(outbox) == []
