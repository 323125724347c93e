import pytest
from collections import Counter
from support.errors_scene import Row
from support.waiting import eventually
pytestmark = pytest.mark.broker
@pytest.mark.parametrize("n", range(12))
def test_k(scene, n):
    scene.park([Row(b"k%d" % number, b"v") for number in range(60)])
    assert scene.count(scene.error_topic) == 60
    first=[r.key for r in scene.read(scene.error_topic)]
    with scene.start("replay", "--yes", "--rate", "10") as process:
        try:
            eventually(lambda: scene.count(scene.topic) >= 20, why="the first replayed records")
        finally:
            process.kill()
            out=process.communicate()
    a=[(r.partition,r.offset,r.key) for r in scene.read(scene.topic)]; c=scene.committed(); b=[(r.partition,r.offset,r.key) for r in scene.read(scene.error_topic, c)]
    keys={k for *_,k in a+b}
    if len(first)!=60 or keys != {b"k%d" % number for number in range(60)}:
        print("FIRST",len(first)); print("A",a); print("B",b); print("C",c, scene.ends(scene.error_topic), scene.ends(scene.topic)); print(out)
        print("AGAIN", len(scene.read(scene.topic)), len(scene.read(scene.error_topic, c)))
        raise AssertionError
