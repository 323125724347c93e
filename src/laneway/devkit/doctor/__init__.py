"""Checks whether this machine is ready for laneway, and how to fix it if not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laneway.devkit.broker import home_directory
from laneway.devkit.doctor._check import Check
from laneway.devkit.doctor._kafka import check_jars, check_port, check_reachable
from laneway.devkit.doctor._machine import (
    check_byte_code,
    check_disk,
    check_java,
    check_memory,
    check_python,
    temporary_folder,
)
from laneway.devkit.doctor._spark import check_maven_folder, check_worker_modules, check_worker_python

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Check", "checks"]


def checks(bootstrap: str | None = None, home: Path | None = None) -> list[Check]:
    """Check everything and return one finding each; changes nothing, never raises.

    Args:
        bootstrap: brokers to check as well, ``host:port`` separated by commas.
        home: default ``LANEWAY_HOME``.
    """
    home = home_directory(home)
    addresses = [part.strip() for part in (bootstrap or "").split(",") if part.strip()]
    return [
        check_python(),
        check_java(),
        check_jars(home),
        check_port(home),
        check_disk("Disk of LANEWAY_HOME", home),
        check_disk("Disk of temporary files", temporary_folder()),
        check_memory(),
        check_worker_python(),
        check_worker_modules(),
        check_maven_folder(),
        check_byte_code(),
        *(check_reachable(address) for address in addresses),
    ]
