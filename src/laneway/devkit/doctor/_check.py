"""One finding about this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check", "failed", "ok", "warning"]

Status = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it stands, and what to do about it.

    Args:
        name: what was looked at.
        status: ``ok``; ``warning`` when laneway works, but worse; ``failed`` when something of it will not work.
        detail: what was found.
        fix: what to do; empty when there is nothing to do.
    """

    name: str
    status: Status
    detail: str
    fix: str = ""


def ok(name: str, detail: str) -> Check:
    """All is well."""
    return Check(name, "ok", detail)


def warning(name: str, detail: str, fix: str) -> Check:
    """It works, but worse than it could."""
    return Check(name, "warning", detail, fix)


def failed(name: str, detail: str, fix: str) -> Check:
    """It will not work."""
    return Check(name, "failed", detail, fix)
