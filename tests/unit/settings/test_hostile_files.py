"""Files that try to run code, eat memory or hide their content."""

from __future__ import annotations

import time

import pytest

from laneway.errors import SettingsError
from laneway.settings import load


def problems(path):
    with pytest.raises(SettingsError) as caught:
        load(path)
    return [str(problem).removeprefix(str(path)) for problem in caught.value.problems]


TAGS = (
    "!!python/object/apply:os.system ['touch owned']",
    "!!python/object/new:type {args: [x, [], {}]}",
    "!!python/name:os.system ''",
    "!!python/module:os ''",
    "!!python/object:subprocess.Popen {}",
    "!!python/tuple [1]",
    "!!binary aGk=",
    "!!timestamp 2020-01-01",
    "!!str 5",
    "!!set {a}",
    "!custom 1",
    "! 1",
    "!<tag:yaml.org,2002:python/object/apply:os.system> [id]",
)


@pytest.mark.parametrize("tagged", TAGS)
def test_tags_are_refused(tagged, tmp_path, monkeypatch):
    """No tag makes an object, whatever it is; the line is named."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "laneway.yaml"
    path.write_text(f"default:\n  drain: {tagged}\n")
    [problem] = problems(path)
    assert problem.startswith(":2: drain: a tag ")
    assert not (tmp_path / "owned").exists()


def laughs():
    lines = [f"  a{level}: &a{level} [*a{level - 1}, *a{level - 1}]" for level in range(1, 10)]
    return "\n".join(["default:", "  a0: &a0 [x, x, x, x, x, x, x, x, x]", *lines])


def wide_laughs():
    return "x: &a [" + ", ".join("1" * 9000) + "]\ndefault:\n  b: [" + ", ".join(["*a"] * 19) + "]\n"


def merges():
    return "x: &a {k: 1}\ndefault:\n  <<: [" + ", ".join(["*a"] * 30) + "]\n"


HOSTILE = {
    "more aliases than allowed": (
        "default:\n"
        + "".join(f"  k{i}: &a{i} x\n" for i in range(30))
        + "  z: ["
        + ", ".join(f"*a{i}" for i in range(30))
        + "]\n",
        "more than 20 aliases",
    ),
    "billion laughs": (laughs() + "\n  z: [*a9, *a9, *a9]\n", "more than 20 aliases"),
    "wide aliases": (wide_laughs(), "more than 50000 values"),
    "merge bomb": (merges(), "more than 20 aliases"),
    "self reference": ("default: &a\n  drain: *a\n", "has no anchor before it"),
    "deep flow": ("default: " + "[" * 5000 + "]" * 5000, "more than 20 levels deep"),
    "deep tables": ("default:\n" + "".join(f"{' ' * (i + 1)}k:\n" for i in range(40)), "more than 20 levels deep"),
    "deep by alias": (
        "a: &a " + "{k: " * 11 + "1" + "}" * 11 + "\ndefault: " + "{k: " * 10 + "*a" + "}" * 10 + "\n",
        "more than 20 levels deep",
    ),
    "many values": ("default: [" + "1," * 60_000 + "]", "more than 50000 values"),
    "control character": ("default:\n  drain: \x01\n", "character that YAML forbids"),
    "long number": ("default:\n  spark: {tasks: " + "9" * 10_000 + "}\n", "spark.tasks"),
    "long text": ("default:\n  drain: " + "1s" * 10_000 + "\n", "drain"),
    "long key": ("default:\n  ? " + "k" * 100_000 + "\n  : 1\n", "there is no such setting"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_quickly(name, tmp_path):
    """A hostile file gives one short problem, within seconds."""
    text, expected = HOSTILE[name]
    path = tmp_path / "laneway.yaml"
    path.write_text(text)
    start = time.perf_counter()
    [problem] = problems(path)
    assert expected in problem
    assert len(problem) < 500
    assert time.perf_counter() - start < 5


def test_a_huge_file_is_not_read(tmp_path):
    """A sparse file of 100 MB is refused after its first megabyte."""
    path = tmp_path / "laneway.yaml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    assert problems(path) == [": the file is larger than 1 MiB. Fix: keep only settings in it"]


def test_other_encodings_are_refused(tmp_path):
    """A file that is not UTF-8 is named with the line of the first bad byte."""
    path = tmp_path / "laneway.yaml"
    path.write_bytes(b"default:\n  drain: \xff\n")
    assert problems(path) == [":2: the file is not UTF-8 text. Fix: save the file as UTF-8"]


def test_a_missing_file_is_a_problem(tmp_path):
    """A path without a file is a problem, not a traceback."""
    assert problems(tmp_path / "nope.yaml") == [": the file does not exist. Fix: give the path of an existing file"]


def test_a_folder_is_a_problem(tmp_path):
    """A folder instead of a file is a problem, not a traceback."""
    assert problems(tmp_path) == [": the file cannot be read: Is a directory. Fix: give a readable file"]


def test_control_characters_in_keys_are_escaped(tmp_path):
    """A key cannot write lines or colours into the terminal."""
    path = tmp_path / "laneway.yaml"
    path.write_text('default:\n  "a\\nb\\e[31m": 1\n')
    [problem] = problems(path)
    assert problem.startswith(":2: a\\nb\\x1b[31m: there is no such setting")
