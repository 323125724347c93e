"""Spark's private folder is tried before anything runs."""

from __future__ import annotations

import pytest

from laneway._engines.spark.checkpoint import require_writable
from laneway.errors import CheckpointError


def test_a_folder_is_made_and_left_empty(tmp_path):
    """With what lies above it."""
    folder = tmp_path / "a" / "b"
    require_writable(folder)
    assert list(folder.iterdir()) == []


def test_what_is_no_folder_is_named_with_the_reason(tmp_path):
    """The message says what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"folder .*/file/app cannot be written: Not a directory\. .* TMPDIR"):
        require_writable(tmp_path / "file" / "app")
