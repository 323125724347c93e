"""The documentation of settings is made from the models."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from laneway.settings import load, reference
from laneway.settings._introspect import walk

DOCS = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_committed_table_is_the_generated_one():
    """docs/configuration.md holds the table of all settings word for word."""
    text = DOCS.read_text(encoding="utf-8")
    actual = text.split("<!-- reference: begin -->\n")[1].split("\n<!-- reference: end -->")[0]
    assert reference() == actual


def test_every_setting_is_described():
    """No setting without a sentence of meaning."""
    assert [key for key, info in walk() if len(info.description or "") < 15] == []


def test_the_example_of_the_documentation_loads(tmp_path):
    """The first YAML block of the page is a valid configuration, in both of its profiles."""
    block = re.search(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert block
    path = tmp_path / "laneway.yaml"
    path.write_text(block[1], encoding="utf-8")
    (tmp_path / "ca.pem").write_text("x")
    environ = {"KAFKA_PASSWORD": "x"}
    for profile in ("default", "prod"):
        assert load(path, profile=profile, environ=environ).warnings == ()


@pytest.mark.parametrize(
    "word", ["virtualPartitionCount", "errorConfig.cron", "producerConfig.requiredAcks", "offsetInitial"]
)
def test_the_mapping_names_the_old_knobs(word):
    """The table of other names has the knobs that people look for."""
    assert f"`{word}`" in DOCS.read_text(encoding="utf-8")
