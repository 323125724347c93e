"""Which engine runs an app, as the configuration says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laneway._runtime.configure import effective

if TYPE_CHECKING:
    from laneway.settings import Settings
    from laneway.typing import Engine

__all__ = ["default_engine", "engine_of"]


def engine_of(settings: Settings) -> Any:
    """The class of the configured engine; each engine is imported only when it runs."""
    if settings.engine == "direct":
        from laneway._engines.direct import DirectEngine

        return DirectEngine
    from laneway._engines.spark import SparkEngine

    return SparkEngine


def default_engine() -> Engine:
    """The engine of ``laneway.yaml`` and the environment; Spark by default.

    Raises:
        SettingsError: the configuration is invalid.
    """
    settings = effective(None, {})
    engine: Engine = engine_of(settings)(settings)
    return engine
