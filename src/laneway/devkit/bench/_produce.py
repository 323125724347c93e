"""Fills a topic, as fast as it goes or at a steady rate; runs as a process of its own so that it is not measured."""

from __future__ import annotations

import subprocess
import sys

__all__ = ["fill"]


def fill(
    brokers: str, topic: str, records: int, *, keys: int, rate: int | None = None, is_skewed: bool = False
) -> subprocess.Popen[bytes]:
    """Start a process that produces *records* records; wait for it to know that they are all acknowledged."""
    arguments = [brokers, topic, str(records), str(keys), str(rate or 0), str(int(is_skewed))]
    return subprocess.Popen([sys.executable, "-m", "laneway.devkit.bench._producer", *arguments])
