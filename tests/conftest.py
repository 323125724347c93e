"""Shared fixtures: one broker and one Spark session for the whole run, made when first asked for."""

from __future__ import annotations

import re
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laneway.devkit.broker import Running
    from support.contract import Cluster


ROOT = Path(__file__).parents[1]
_BROKER: pytest.StashKey[tuple[ExitStack, str]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--repeat`, which shows whether a test passes every time."""
    parser.addoption("--repeat", type=int, default=1, help="how often to run each test")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make as many items of a test as `--repeat` says."""
    if (times := metafunc.config.getoption("repeat")) > 1:
        metafunc.fixturenames.append("_repetition")
        metafunc.parametrize("_repetition", range(times))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Bare `pytest` needs neither broker nor Spark; naming a path or a marker runs what was named.

    Files with real processes come first, in their random order, and the Spark session before all others: the quick ones
    fill what is left at the end.
    """
    heavy = {item for item in items if any(map(item.get_closest_marker, ("broker", "spark")))}
    files = {item.path for item in heavy}
    items.sort(key=lambda item: (_shares(item.nodeid) != "spark", item.path not in files))
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.option.markexpr:
        return
    if heavy:
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if item not in heavy]


def _shares(nodeid: str) -> str:
    """The fixture that one process makes for many files, when a test is in such a file: `spark` or `three_nodes`."""
    path, _, name = nodeid.partition("::")
    if path.startswith("tests/contract/"):
        return "spark" if "spark" in name.partition("[")[2] else ""
    return _asked_for(path) if path.startswith("tests/scenarios/") else ""


@cache
def _asked_for(path: str) -> str:
    asked = re.search(r"^def test_\w+\([^)]*\b(spark|three_nodes)\b", (ROOT / path).read_text(), re.MULTILINE)
    return asked[1] if asked else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one process run a whole file, and one all files that share a Spark session or a cluster."""
    from xdist.scheduler import LoadFileScheduling

    class BySharedOrFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _shares(nodeid) or super()._split_scope(nodeid)

    return BySharedOrFile(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give each process of a run the broker that all of them share; it is started for the first of them."""
    if "not broker" in node.config.option.markexpr:
        return
    if _BROKER not in node.config.stash:
        from laneway.devkit import broker

        stack = ExitStack()
        node.config.stash[_BROKER] = (stack, stack.enter_context(broker.ephemeral()).bootstrap)
    node.workerinput["bootstrap"] = node.config.stash[_BROKER][1]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the broker that the processes of the run shared."""
    if _BROKER in config.stash:
        config.stash[_BROKER][0].close()


@pytest.hookimpl(trylast=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to `make soak` on Spark what is decided in code that all engines share.

    `engine_neutral("async")` keeps on Spark what has that parameter.
    """
    neutral = item.get_closest_marker("engine_neutral")
    parameters = item.callspec.id.split("-") if hasattr(item, "callspec") else []
    if neutral is not None and "spark" in parameters and not set(neutral.args) & set(parameters):
        item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A real broker that lives as long as the test run."""
    from confluent_kafka import Producer

    from laneway.devkit import broker
    from support.contract import Cluster
    from support.doors import Admin

    with ExitStack() as stack:
        shared = getattr(request.config, "workerinput", {}).get("bootstrap")
        bootstrap = shared or stack.enter_context(broker.ephemeral()).bootstrap
        options = {"bootstrap.servers": bootstrap}
        producer = Producer({**options, "linger.ms": 1, "enable.idempotence": True})
        yield Cluster(bootstrap, Admin(options), producer)


@pytest.fixture(scope="session")
def _cluster_of_three() -> Iterator[Running]:
    from laneway.devkit import broker

    with broker.ephemeral(nodes=3) as running:
        yield running


@pytest.fixture
def three_nodes(_cluster_of_three: Running) -> Iterator[Running]:
    """A cluster for tests that stop one of its nodes; all of them run again for the next test."""
    yield _cluster_of_three
    for node in _cluster_of_three.nodes:
        node.start()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session that engines reuse, because starting one costs seconds."""
    from support.doors import open_session, session_conf

    folder = tmp_path_factory.mktemp("spark")
    conf = session_conf("local", ui=False, extra={"spark.sql.warehouse.dir": str(folder)})
    session, _is_ours = open_session("tests", "local[4,8]", conf)
    yield session
    session.stop()
