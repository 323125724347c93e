"""Whatever is given, the answer is settings or one `SettingsError`."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from laneway.errors import SettingsError
from laneway.settings import Settings, load
from laneway.settings._introspect import fields, walk

NAMES = st.sampled_from(sorted({part for key, _ in walk() for part in key.split(".")} | set(fields(Settings))))
KEYS = st.one_of(NAMES, st.sampled_from(["main", "charge", "env", "file", "<<", ""]), st.text(max_size=5))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["5s", "1MiB", "main", "h:1", "sasl_ssl", "PLAIN", "all", "local", "spark"]),
)
GARBAGE = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=20
)


def is_answered(call):
    try:
        return isinstance(call(), Settings)
    except SettingsError as error:
        return bool(error.problems) and bool(str(error))


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS, GARBAGE, max_size=6))
def test_garbage_in_a_file(profile):
    """A file of nested garbage never raises anything but SettingsError."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "laneway.yaml"
        # JSON is YAML; it lets the garbage through unchanged.
        path.write_text(json.dumps({"default": profile}), encoding="utf-8")
        assert is_answered(lambda: load(path))


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.lists(KEYS, max_size=4).map(".".join), GARBAGE | st.binary(max_size=3), max_size=6))
def test_garbage_in_flags(overrides):
    """Flags of nested garbage never raise anything but SettingsError."""
    assert is_answered(lambda: load(overrides=overrides))


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.lists(KEYS, max_size=4).map(lambda parts: "LANEWAY_" + "__".join(parts).upper()), st.text()))
def test_garbage_in_the_environment(environ):
    """Variables of any name and value never raise anything but SettingsError."""
    assert is_answered(lambda: load(environ=environ))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_garbage_bytes(data):
    """A file of any bytes never raises anything but SettingsError."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "laneway.yaml"
        path.write_bytes(data)
        assert is_answered(lambda: load(path))
