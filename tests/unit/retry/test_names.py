"""Names of the topics beside a source topic."""

from __future__ import annotations

from laneway.retry import error_topic_name


def test_each_app_has_its_own_error_topic():
    """Topic and app are in the name, so two apps never read each other's failures."""
    assert error_topic_name("orders", "billing") == "orders.billing.error"
