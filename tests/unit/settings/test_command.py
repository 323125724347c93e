"""``laneway config show`` and ``laneway config check``."""

from __future__ import annotations

import json

import pytest
import yaml
from typer.testing import CliRunner

from laneway.cli._config import app
from laneway.errors import SettingsError

TEXT = """
default:
  clusters:
    main:
      brokers: h:1
      security: {protocol: sasl_ssl, mechanism: PLAIN, username: a, password: pl4nted}
prod:
  engine: direct
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("LANEWAY_CONFIG", "LANEWAY_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "laneway.yaml"
    file.write_text(TEXT)
    return file


def run(*words):
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_show_prints_a_configuration_without_secrets(path):
    """The output is YAML with the mask, and comments name the lines."""
    result = run("show", "--config", str(path), "--profile", "prod")
    settings = yaml.safe_load(result.stdout)["default"]
    assert (settings["engine"], settings["clusters"]["main"]["security"]["password"]) == ("direct", "••••")
    assert f"# engine: {path}:8" in result.stdout
    assert "pl4nted" not in result.output


def test_show_prints_json(path):
    """--json gives settings, origins and warnings."""
    report = json.loads(run("show", "--json").stdout)
    assert report["settings"]["clusters"]["main"]["brokers"] == ["h:1"]
    assert report["origins"]["clusters.main.brokers"] == "laneway.yaml:5"
    assert len(report["warnings"]) == 1


def test_check_says_ok(path):
    """A good file is ok; a risk is a warning on the side."""
    result = run("check")
    assert (result.exit_code, result.stdout) == (0, "ok\n")
    assert "the secret is in the file" in result.stderr


def test_check_raises_every_problem(path):
    """A bad file raises, so that the command line prints the problems and exits with 2."""
    path.write_text("default: {engine: x, drain: 5}\n")
    with pytest.raises(SettingsError) as caught:
        run("check")
    assert [problem.key for problem in caught.value.problems] == ["engine", "drain"]
