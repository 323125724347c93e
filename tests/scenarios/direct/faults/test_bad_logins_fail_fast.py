"""What waiting cannot mend ends a run at once, with one line that says why."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from support.direct_faults import DirectFaultScene, told
from support.guarded import guarded_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from laneway.devkit import broker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LOGIN = """
default:
  clusters:
    main:
      brokers: [127.0.0.1:1]
      security:
        protocol: sasl_plaintext
        mechanism: PLAIN
        username: alice
        password: {env: IT_PASSWORD}
        allow_plaintext_passwords: true
"""


@pytest.fixture
def guarded() -> Iterator[tuple[broker.Running, str]]:
    """A broker with a second way in, which asks for a password, and the address of that."""
    with guarded_broker("right") as found:
        yield found


@pytest.fixture
def scene(
    guarded: tuple[broker.Running, str], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[DirectFaultScene]:
    """On that broker; the test itself goes in by the way that is open."""
    made = DirectFaultScene(guarded[0].bootstrap, tmp_path, request.node.nodeid)
    made.create(made.topic)
    yield made
    made.close()


def test_a_wrong_password(scene: DirectFaultScene, guarded: tuple[broker.Running, str]) -> None:
    """A run with the right password works; one with a wrong password ends with one line that does not show it."""
    scene.produce(10)
    flags = ("--brokers", guarded[1])
    scene.finish(*flags, seconds=0, config=LOGIN, password="right")  # noqa: S106 - of this test
    began = time.monotonic()
    run = scene.run(*flags, seconds=0, config=LOGIN, password="wrong-one")  # noqa: S106 - of this test
    assert run.ended(15) == 1, run.output
    print(f"ended after {time.monotonic() - began:.1f} s: {told(run)}")
    assert "uthentication" in told(run) or "AUTHENTICATION" in told(run)
    assert "wrong-one" not in run.output


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ("default:\n  drain: soon\n", "drain"),
        ("default:\n  handlers:\n    nobody:\n      lanes: 2\n", "nobody"),
        ("default:\n  clusters:\n    main:\n      brokers: [a:1]\n      client:\n        group.id: x\n", "group.id"),
    ],
)
def test_a_bad_configuration(tmp_path: Path, config: str, part: str) -> None:
    """It ends a run with code 2 before any broker is asked: there is none."""
    scene = DirectFaultScene("127.0.0.1:1", tmp_path, "bad configuration")
    try:
        run = scene.run(config=config)
        assert run.ended(40) == 2, run.output
        assert part in run.output
        assert "Traceback" not in run.output
        assert "waiting" not in run.output
    finally:
        scene.close()
