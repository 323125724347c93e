"""Names of the topics beside a source topic."""

from __future__ import annotations

import pytest

from laneway._declare.handler import ERROR_PATTERN, RETRY_PATTERN, error_topic_name, topic_name
from laneway.errors import DeclarationError


def named(pattern, step=3):
    return topic_name(pattern, topic="orders", app="billing", handler="charge", step=step)


def test_each_app_has_its_own_error_topic():
    """Topic and app are in the name, so two apps never read each other's failures."""
    assert error_topic_name("orders", "billing") == "orders.billing.error"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (ERROR_PATTERN, "orders.billing.error"),
        (RETRY_PATTERN, "orders.billing.retry.3"),
        ("{topic}-{handler}-dlt", "orders-charge-dlt"),
        ("dlq.{topic}", "dlq.orders"),
        ("all-errors", "all-errors"),
        ("{step}{step}", "33"),
        ("{topic}-retry-{step:04}", "orders-retry-0003"),
    ],
)
def test_a_pattern_becomes_a_name(pattern, expected):
    """Fields may stand anywhere, more than once, or not at all."""
    assert expected == named(pattern)


@pytest.mark.parametrize("field", ["", "0", "partition", "topic.name", "topic[0]", "Topic", " topic", "app.__class__"])
def test_a_field_that_does_not_exist_is_refused(field):
    """The message names the field and those there are; nothing of an object can be reached."""
    with pytest.raises(DeclarationError) as caught:
        named(f"a.{{{field}}}.b")

    assert f"there is no {{{field}}}; a topic's name may use {{topic}}, {{app}}, {{handler}}, {{step}}" in str(
        caught.value
    )


@pytest.mark.parametrize("pattern", ["{topic", "topic}", "{topic}.{", "{topic}}"])
def test_braces_that_do_not_match_are_refused(pattern):
    """The pattern is shown, with what is wrong with it."""
    with pytest.raises(DeclarationError, match="is not a pattern of a topic's name"):
        named(pattern)
