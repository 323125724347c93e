"""What the command says of itself."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from laneway.cli._main import app


def test_the_version():
    """What a bug report needs first."""
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output.split()[:2]) == (0, ["laneway", version("laneway")])


@pytest.mark.parametrize(("words", "told"), [(["rnu"], "Did you mean 'run'?"), (["--vresion"], "--version")])
def test_a_word_that_is_wrong(words, told):
    """Exit code 2, and what was probably meant."""
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert told in result.output


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["run"], "[default: spark, or as configured]"),
        (["errors", "list"], "[default: 50; with --json all]"),
        (["errors", "replay"], "--since"),
    ],
)
def test_the_help_names_options_and_their_defaults(words, part, monkeypatch):
    """Also those that are written in brackets, and those that several commands share."""
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, [*words, "--help"])
    assert (result.exit_code, part in result.output) == (0, True)
