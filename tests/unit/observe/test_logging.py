"""Log lines of lasting trouble."""

from laneway.observe import RateLimit, logger
from laneway.testing import FakeClock


def test_the_same_trouble_is_logged_once_in_a_while():
    """A subject is allowed at once, then not before its pause is over; other subjects are not held back by it."""
    clock = FakeClock()
    limit = RateLimit(clock, every=10.0)
    assert [limit.allows("a"), limit.allows("a"), limit.allows("b")] == [True, False, True]
    clock.advance("9900ms")
    assert not limit.allows("a")
    clock.advance("200ms")
    assert limit.allows("a")


def test_trouble_that_comes_back_is_logged_at_once():
    """After `forget` a subject does not wait for its pause."""
    limit = RateLimit(FakeClock())
    assert limit.allows("a")
    limit.forget("a")
    assert limit.allows("a")


def test_loggers_are_named_by_room():
    """Users silence or raise one room by its name."""
    assert logger("kafka").name == "laneway.kafka"
