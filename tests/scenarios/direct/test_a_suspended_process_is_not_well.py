"""A process that was suspended says nothing any more, and `laneway why` says so in both of its forms."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from support.waiting import eventually

if TYPE_CHECKING:
    from support.direct_scene import DirectScene

pytestmark = pytest.mark.broker

# What an engine does once a second; its last word is old already, so that the test need not wait.
PROCESS = """
import sys, time
from laneway._runtime.status_file import StatusFile
said = {"state": "consuming", "detail": "", "owned": {}, "health": {"level": "OK", "reasons": []}, "why": []}
StatusFile(sys.argv[1]).write({**said, "at": time.time() - 13})
print("written", flush=True)
time.sleep(60)
"""


def test_text_and_json_agree(scene: DirectScene, tmp_path, monkeypatch) -> None:
    """Neither calls it OK after 13 s."""
    monkeypatch.setenv("LANEWAY_HOME", str(tmp_path))
    halted = subprocess.Popen([sys.executable, "-c", PROCESS, scene.group], stdout=subprocess.PIPE, text=True)
    try:
        assert halted.stdout is not None
        assert halted.stdout.readline() == "written\n"
        halted.send_signal(signal.SIGSTOP)
        why = [sys.executable, "-m", "laneway.cli", "why", scene.group, "--brokers", scene.bootstrap]
        eventually(lambda: psutil.Process(halted.pid).status() == psutil.STATUS_STOPPED)
        text = subprocess.run(why, capture_output=True, text=True, timeout=60, check=True).stdout
        told = subprocess.run([*why, "--json"], capture_output=True, text=True, timeout=60, check=True).stdout
    finally:
        halted.kill()
        halted.communicate()
    [process] = json.loads(told)["processes"]
    assert process["health"]["level"] == "CRITICAL"
    assert "hangs or was suspended" in process["health"]["reasons"][0]["text"]
    assert "no status for 1" in text
    assert "OK, consuming" not in text
