"""One finding about this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check", "failed", "ok", "warning"]

Status = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Check:
    """The subject of a check, its status, and the fix."""

    name: str
    status: Status
    detail: str
    fix: str = ""


def ok(name: str, detail: str) -> Check:
    """No problem."""
    return Check(name, "ok", detail)


def warning(name: str, detail: str, fix: str) -> Check:
    """It works, but worse than it could."""
    return Check(name, "warning", detail, fix)


def failed(name: str, detail: str, fix: str) -> Check:
    """It will not work."""
    return Check(name, "failed", detail, fix)
