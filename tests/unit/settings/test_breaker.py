"""The breaker of a handler, as the configuration may change it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from laneway.errors import SettingsError
from laneway.settings import load


def test_both_settings_are_read():
    """A number of calls and a duration."""
    settings = load(overrides={"handlers.charge.breaker_failures": "3", "handlers.charge.breaker_pause": "250ms"})

    handler = settings.handlers["charge"]
    assert (handler.breaker_failures, handler.breaker_pause) == (3, timedelta(milliseconds=250))


@pytest.mark.parametrize(("name", "value"), [("breaker_failures", "0"), ("breaker_pause", "9ms")])
def test_what_the_code_could_not_declare_is_refused(name, value):
    """With the name of the setting."""
    with pytest.raises(SettingsError, match=f"handlers.charge.{name}"):
        load(overrides={f"handlers.charge.{name}": value})
