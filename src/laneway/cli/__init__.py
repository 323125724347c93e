"""The command line."""

from laneway.cli._main import main

__all__ = ["main"]
