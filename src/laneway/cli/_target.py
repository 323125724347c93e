"""Finds the app that a command names: ``module:app``."""

from __future__ import annotations

import importlib
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path

from laneway._declare.app import App
from laneway.cli._logging import user_may_configure
from laneway.errors import DeclarationError, LanewayError

__all__ = ["TargetError", "find_app"]


class TargetError(LanewayError):
    """The app named on the command line cannot be loaded; the message says why."""


def find_app(target: str) -> App:
    """Import the app named ``module:attribute``; the current folder comes first on the path.

    Raises:
        TargetError: with the cause and what to write instead.
    """
    name, _, attribute = target.partition(":")
    if not name or name.endswith(".py") or "/" in name:
        hint = Path(name).with_suffix("").as_posix().replace("/", ".") if name else "billing"
        raise TargetError(f"{target!r} is not an app: write module:app, for example {hint}:app")
    sys.path.insert(0, str(Path.cwd()))
    with user_may_configure():
        module = _import(name)
    found = getattr(module, attribute or "app", None)
    if isinstance(found, App):
        return found
    apps = [key for key, value in vars(module).items() if isinstance(value, App)]
    close = get_close_matches(attribute, apps, 1) or apps
    hint = f"; did you mean {name}:{close[0]}?" if close else f"; module {name!r} has no App at all"
    what = "is not an App" if found is not None else "does not exist"
    raise TargetError(f"{name}:{attribute or 'app'} {what}{hint}")


def _import(name: str) -> object:
    try:
        return importlib.import_module(name)
    except DeclarationError as error:
        raise TargetError(f"module {name!r}: {error}") from error
    except ModuleNotFoundError as error:
        if error.name == name.split(".", 1)[0] or error.name == name:
            raise TargetError(
                f"there is no module {name!r} in {Path.cwd()} or on the Python path; run the command in the folder of "
                f"{name.split('.', maxsplit=1)[0]}.py, or set PYTHONPATH"
            ) from error
        raise TargetError(f"module {name!r} needs {error.name!r}, which is not installed") from error
    except Exception as error:  # any error of the user's module becomes one line
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        raise TargetError(f"importing {name!r} failed at {place}: {type(error).__name__}: {error}") from error
