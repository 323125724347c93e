"""The Spark session's configuration and output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from laneway._engines.spark.from_settings import master_of
from laneway._engines.spark.output_filter import OutputFilter, _without_farewells
from laneway._engines.spark.query_spec import QuerySpec
from laneway._engines.spark.session import _start_java, session_conf
from laneway.settings._secret import SecretText
from support.waiting import eventually


def stream(tasks, routes):
    return QuerySpec("a", "t", routes, b"", (), {}, {}, {}, tasks=tasks)


def test_a_second_copy_of_a_task_is_never_started():
    """Speculation would run two calls of a key at once."""
    assert session_conf("local", ui=False, extra={})["spark.speculation"] == "false"


def test_a_user_s_setting_wins():
    """`spark.conf` goes over every default."""
    assert session_conf("local", ui=False, extra={"spark.task.maxFailures": "2"})["spark.task.maxFailures"] == "2"


def test_java_starts_with_a_private_file_without_secrets(tmp_path, monkeypatch):
    """What it has to know at its start, exactly; secrets follow over the gateway, and the file goes."""
    found = {}

    def start():
        words = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert (words[0], words[2:]) == ("--properties-file", ["--load-spark-defaults", "--verbose", "pyspark-shell"])
        file = Path(words[1])
        found.update(mode=file.stat().st_mode & 0o777, text=file.read_bytes())

    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")
    monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", start)
    conf = {"spark.a": "x = y: \\ #\n ü😀", "spark.b.secret": "hush", "spark.c": SecretText("hush"), "spark.d": "1"}
    _start_java(conf, tmp_path)

    lines = found["text"].decode("ascii").splitlines()
    assert found["mode"] == 0o600
    assert lines[0] == (
        r"spark\u002ea=x\u0020\u003d\u0020y\u003a\u0020\u005c\u0020\u0023\u000a\u0020\u00fc\ud83d\ude00"
    )
    assert [line.partition("=")[0] for line in lines] == [r"spark\u002ea", r"spark\u002ed"]
    assert list(tmp_path.iterdir()) == []
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--verbose pyspark-shell"


def test_spark_is_told_what_it_must_not_show():
    """Names that tell, values of {env: ...} whatever their name is, and passwords within addresses."""
    extra = {"spark.hadoop.my.sesame": SecretText("x"), "spark.plain": "1"}
    pattern = session_conf("local", ui=False, extra=extra)["spark.redaction.regex"]
    shown = re.compile(pattern.replace(r"\Q", "").replace(r"\E", ""))

    hidden = ["fs.s3a.secret.key", "fs.azure.account.key.lake", "my.sesame", "http://me:pw@host:80", "FS.TOKEN"]
    assert [word for word in hidden if not shown.search(word)] == []
    assert not shown.search("spark.plain")
    assert not shown.search("spark://host:7077")


def test_a_local_master_has_a_slot_for_every_task():
    """All tasks of a batch run at once, and one that fails is tried again."""
    assert master_of("local[*]", [stream(2, ("a", "b")), stream(2, ("c",))]) == "local[4,8]"
    assert master_of("spark://host:7077", [stream(2, ("a",))]) == "spark://host:7077"


def test_secrets_are_not_shown():
    """A stream's text, which logs may hold, has no client options."""
    shown = repr(QuerySpec("a", "t", (), b"x", (), {"p": "hush"}, {"p": "hush"}, {"p": "hush"}))
    assert "hush" not in shown


def test_the_output_of_spark_is_passed_on_without_its_greetings(capfd):
    """What a handler prints is seen, what Spark prints at its start is not."""
    spill = OutputFilter()
    with spill.catching():
        text = "Setting default log level to WARN\\nprinted by a handler\\n"
        child = subprocess.Popen([sys.executable, "-c", f"import sys; sys.stderr.write('{text}')"])
    child.wait()
    seen = []

    def is_seen():
        seen.append(capfd.readouterr().err)
        return "printed by a handler" in "".join(seen)

    eventually(is_seen, timeout=30)
    assert "default log level" not in "".join(seen)


def test_farewells_of_idle_processes_are_left_out():
    """Spark ends what was idle for a minute, and that dies with a traceback; those of handlers are told."""
    head, place = "Traceback (most recent call last):\n", '  File "lib/pyspark/daemon.py", line 95, in worker\n'
    farewell = [head, place, "    outfile.flush()\n", "BrokenPipeError: [Errno 32] Broken pipe\n"]
    own = [head, '  File "shop.py", line 1, in charge\n', "BrokenPipeError: [Errno 32] Broken pipe\n"]
    other = [head, place, "ValueError: x\n"]
    cut = [head, place]
    told = list(_without_farewells(["a\n", *farewell, "b\n", *own, *other, "c\n", *cut]))
    assert told == ["a\n", "b\n", "".join(own), "".join(other), "c\n", "".join(cut)]
