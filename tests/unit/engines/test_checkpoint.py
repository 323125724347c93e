"""The folder of a checkpoint is tried before anything runs."""

from __future__ import annotations

import pytest

from laneway._engines.spark.checkpoint import is_local, require_writable
from laneway.errors import CheckpointError


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}"])
def test_a_folder_is_made_and_left_empty(form, tmp_path):
    """However it is written."""
    folder = tmp_path / "a" / "b"
    require_writable(form.format(folder))
    assert list(folder.iterdir()) == []


def test_what_is_no_folder_is_named_with_the_reason(tmp_path):
    """The message says what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"folder .*/file/app cannot be written: Not a directory\. "):
        require_writable(str(tmp_path / "file" / "app"))


def test_other_file_systems_are_left_to_spark(tmp_path, monkeypatch):
    """No folder of such a name is made here."""
    monkeypatch.chdir(tmp_path)
    require_writable("s3a://lake/app")
    assert not is_local("s3a://lake/app")
    assert list(tmp_path.iterdir()) == []
