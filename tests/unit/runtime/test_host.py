"""The app in a process: its hooks and its event loop."""

from __future__ import annotations

import asyncio

import pytest

from laneway import App
from laneway._runtime.host import AppHost


def test_an_exit_in_a_coroutine_ends_neither_the_loop_nor_in_silence():
    """Who waits for it gets it, and what runs beside goes on."""

    async def leave():
        raise SystemExit(3)

    async def answer():
        return 7

    host = AppHost(App("shop"))
    try:
        with pytest.raises(SystemExit):
            asyncio.run_coroutine_threadsafe(leave(), host.loop).result(10)
        assert asyncio.run_coroutine_threadsafe(answer(), host.loop).result(10) == 7
    finally:
        host.close()


def test_a_cleanup_that_fails_keeps_no_other_from_running():
    """And it is raised."""
    app, ran = App("shop"), []

    @app.cleanup
    def fail():
        raise RuntimeError("planted")

    @app.cleanup
    async def tidy():
        ran.append(True)

    host = AppHost(app)
    with pytest.raises(RuntimeError, match="planted"):
        host.close()
    assert ran == [True]
