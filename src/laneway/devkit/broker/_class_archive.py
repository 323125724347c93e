"""The archive of loaded classes that halves the start of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from laneway.devkit.broker._java import Java

__all__ = ["archive_options", "archive_path"]


def archive_path(java: Java, libs: Path) -> Path:
    """Where the archive of this Java and these jars is kept."""
    return libs.parent / f"classes-java-{java.version}.jsa"


def archive_options(java: Java, libs: Path) -> tuple[str, ...]:
    """JVM flags that use it, when it has been built; a JVM that finds it does not fit goes on without, in silence."""
    path = archive_path(java, libs)
    return (f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off") if path.exists() else ()
