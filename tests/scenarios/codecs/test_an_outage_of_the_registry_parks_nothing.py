"""The schema registry is away while an app runs, on both engines."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from laneway.codecs import Avro, SchemaRegistry
from support.codec_app import Order, receipts_of
from support.schema_registry import schema_registry
from support.spark_scene import Scene
from support.waiting import eventually

pytestmark = pytest.mark.broker
COUNT, KEYS = 60, 6


@pytest.fixture
def scene(cluster, tmp_path, request):
    """A topic of three partitions, and nothing left running."""
    made = Scene(cluster.bootstrap, tmp_path, request.node.nodeid)
    made.create(made.topic)
    made.create(f"{made.topic}.receipts")
    yield made
    made.close()


def produce(scene, server):
    """Orders in Avro; the schemas are registered."""
    with closing(SchemaRegistry(server.url)) as registry:
        codec = Avro(Order, registry=registry, register=True).for_topic(scene.topic)
        scene.produce_rows(
            (b"k%d" % (number % KEYS), codec.encode(Order(str(number), number))) for number in range(COUNT)
        )


@pytest.mark.parametrize(
    ("engine", "kind"), [("direct", "async"), ("direct", "sync"), ("direct", "batch"), ("spark", "async")]
)
def test_records_wait_until_it_answers(scene, engine, kind):
    """Nothing is parked and no attempt used while the registry is away; then every record runs, in its key's order."""
    with schema_registry() as server:
        produce(scene, server)
        server.suspend()
        run = scene.run(
            "--engine", engine, target="support.codec_app:app", registry=server.url,
            receipts=f"{scene.topic}.receipts", kind=kind,
        )  # fmt: skip
        eventually(lambda: "consuming" in run.output, timeout=90, why=lambda: run.output)
        time.sleep(5)  # long enough for more tries than there are attempts
        assert scene.calls() == []
        server.resume()
        with closing(SchemaRegistry(server.url)) as registry:
            codec = receipts_of(registry).for_topic(f"{scene.topic}.receipts")
            scene.until(lambda: scene.committed() == scene.ends())
            verdict = scene.verdict()
            assert (verdict.lost, verdict.inversions) == (0, 0)
            assert [record.header("laneway-error-message") for record in scene.read(scene.error_topic)] == []
            found = [codec.decode(record.raw) for record in scene.read(f"{scene.topic}.receipts")]
            assert sorted(int(each.order) for each in found) == list(range(COUNT))
            assert {each.attempt for each in found} == {1}
