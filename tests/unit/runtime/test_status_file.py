"""What processes of this machine say about themselves."""

from __future__ import annotations

import os

from laneway._runtime.status_file import StatusFile, statuses


def test_a_status_file_is_read_while_its_process_lives(tmp_path):
    """By the name of the app; it is gone when it is removed, and nobody else may read it."""
    mine, other = StatusFile("shop", tmp_path), StatusFile("bank", tmp_path)
    mine.write({"state": "starting"})
    mine.write({"state": "consuming"})
    other.write({"state": "paused"})

    [said] = statuses("shop", tmp_path)
    assert (said["app"], said["pid"], said["state"]) == ("shop", os.getpid(), "consuming")
    assert {oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {"0o600"}
    mine.remove()
    assert statuses("shop", tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 1


def test_what_dead_processes_and_others_left_is_not_believed(tmp_path):
    """The process number may be another's by now, and a file may be no status at all."""
    file = StatusFile("shop", tmp_path)
    file._known["began"] = 1.0  # the same number, another process
    file.write({"state": "consuming"})
    (tmp_path / "half.json").write_text('{"version": 1, "app": "sh')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "old.json").write_text('{"version": 0, "app": "shop", "pid": 1}')

    assert statuses("shop", tmp_path) == []
    assert file._path.exists()  # it may be of another machine that shares the folder
    os.utime(file._path, (1.0, 1.0))
    StatusFile("shop", tmp_path)
    assert not file._path.exists()


def test_a_folder_that_cannot_be_written_harms_nobody(tmp_path):
    """The file is a courtesy, and the run goes on without it."""
    (tmp_path / "run").write_text("not a folder")
    file = StatusFile("shop", tmp_path / "run")
    file.write({"state": "consuming"})
    file.remove()

    assert statuses("shop", tmp_path / "run") == []
