"""Lanes in child processes: real ones, that are killed, hang and crash."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import timedelta

import psutil
import pytest

from laneway import Breaker, Buffer, Reject, Retry, RetryAfter, Topic
from laneway._clock import SystemClock
from laneway._core.processor import Processor
from laneway._declare.interceptors import Interceptors
from laneway._runtime.runners import ProcessRunner
from laneway._runtime.runners import child as _child
from laneway._runtime.runners import threads as _threads
from laneway._runtime.runners.child import LOADING
from laneway._runtime.runners.process_frames import Raised, RunTurn, decode_answer, rebuilt, row_of, take_frame
from laneway.errors import DeclarationError, EngineError, HandlerDiedError, HandlerTimeoutError
from laneway.events import RecordRetried, RecordSkipped
from support import process_handlers as handlers
from support.core import FakeSender, ListSource, lane_threads, make_record, make_records, make_route
from support.process_handlers import notes
from support.waiting import eventually

pytestmark = pytest.mark.slow  # each starts processes; together they take a minute or two

SHORT = timedelta(seconds=1)
PLENTY = timedelta(seconds=120)
"""A time limit that no call reaches, however busy the machine is."""


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    """Where handlers note what they do. When a test is over, no process that it started may be left."""
    monkeypatch.setenv(handlers.LOG, str(tmp_path / "log"))
    before = set(psutil.Process().children(recursive=True))
    yield
    left = [process for process in psutil.Process().children(recursive=True) if process not in before]
    assert left == []


def make(function, *, processes=2, sender=None, setups=(), cleanups=(), is_kept=False, **fields):
    route, clock = make_route(function, lanes=fields.pop("lanes", 8), **fields), SystemClock()
    processor = Processor([route], "billing", lanes=processes, sender=sender or FakeSender(), clock=clock)
    runner = ProcessRunner(processor, route, clock, processes=processes, hooks=(setups, cleanups), is_kept=is_kept)
    return processor, runner


def run(function, records, **fields):
    processor, runner = make(function, **fields)
    runner.run(ListSource(records))
    return processor.close()


def orders(*words, keys=None):
    """Records that say what is to be done, each of a key of its own unless told otherwise."""
    keys = keys or range(len(words))
    return [
        make_record(offset, b"key-%d" % key, word.encode())
        for offset, (word, key) in enumerate(zip(words, keys, strict=True))
    ]


def headers_of(copy):
    return {name: value.decode() for name, value in copy["headers"]}


def calls_of(key):
    return [(line["what"], line["offset"]) for line in notes() if line.get("key") == key]


# Order


def test_keys_keep_their_order_and_never_overlap_across_processes():
    """Every record is called once, those of a key one after the other, and both children work at once."""
    records = orders(*["work 0.002"] * 200, keys=[offset % 7 for offset in range(200)])
    tally = run(handlers.obey, records)

    assert tally.handled == 200
    for key in range(7):
        offsets = range(key, 200, 7)
        assert [(what, at) for at in offsets for what in ("begin", "end")] == calls_of(f"key-{key}")
    assert len({line["pid"] for line in notes()}) == 2
    assert os.getpid() not in {line["pid"] for line in notes()}


def test_a_failing_key_waits_and_the_others_go_on():
    """The record is tried again with its attempt counted, and its key's next one comes after it."""
    tally = run(handlers.obey, orders("fail 2", "nothing", "nothing", keys=[0, 0, 1]), retry=Retry(3, "1ms"))

    assert (tally.handled, tally.retried, tally.parked) == (3, 2, 0)
    begun = [(line["offset"], line["attempt"]) for line in notes("begin") if line["key"] == "key-0"]
    assert begun == [(0, 1), (0, 2), (0, 3), (1, 1)]


def test_one_process_is_one_lane():
    """Nothing overlaps when there is only one child, and only one is started."""
    tally = run(handlers.obey, orders(*["work 0.001"] * 20), processes=1)

    assert tally.handled == 20
    assert len({line["pid"] for line in notes()}) == 1
    assert [line["what"] for line in notes()] == ["begin", "end"] * 20


# Time limits


@pytest.mark.parametrize("word", ["hang", "spin"])
def test_a_call_is_killed_at_its_time_limit(word):
    """It fails with a time limit, tells where it was, and a child goes on with the key's next record."""
    sender = FakeSender()
    tally = run(handlers.obey, orders(word, "look", "look", keys=[0, 0, 1]), processes=1, timeout=SHORT, sender=sender)

    assert (tally.handled, tally.parked) == (2, 1)
    headers = headers_of(sender.acked[0])
    assert headers["laneway-error-type"] == "laneway.errors.HandlerTimeoutError"
    assert headers["laneway-error-message"] == "handler 'handle' was killed at its time limit of 1 s"
    assert f"in do_{word}" in headers["laneway-error-trace"]


def test_a_killed_process_is_gone_before_its_key_goes_on():
    """Not even a dead one that nobody has collected is left, and each call is made by a new child."""
    run(handlers.obey, orders("hang", "look", "hang", "look", keys=[0] * 4), processes=1, timeout=SHORT)

    assert calls_of("key-0") == [("begin", 0), ("begin", 1), ("end", 1), ("begin", 2), ("begin", 3), ("end", 3)]
    assert [line["left"] for line in notes("look")] == [[], []]
    assert len({line["pid"] for line in notes("begin")}) == 3


def test_a_process_that_is_slow_to_die_keeps_its_key_waiting():
    """The other child is free, but the key's next record begins when the killed process is gone, and not before."""
    words = ["work 0.5", "work 0.5", "burden", "look"]
    run(handlers.obey, orders(*words, keys=[0, 1, 2, 2]), timeout=timedelta(seconds=3))

    killed = next(line["pid"] for line in notes("begin") if line["offset"] == 2)
    looked = notes("look")[0]
    assert killed not in looked["left"]
    assert looked["pid"] in {line["pid"] for line in notes("begin")[:2]}, "it was a new child, so nothing was shown"


def test_a_time_limit_is_for_one_call_and_not_for_a_turn():
    """Calls that keep to it are never killed, however many there are."""
    tally = run(handlers.obey, orders(*["work 0.02"] * 60), processes=1, timeout=timedelta(seconds=1), order="none")

    assert (tally.handled, tally.parked) == (60, 0)
    assert len({line["pid"] for line in notes("begin")}) == 1


def test_a_time_limit_is_for_one_call_and_not_for_all_groups_of_a_batch():
    """Each group of a kind is a call."""
    tally = run(
        handlers.obey_all,
        orders(*["work 0.4"] * 8),
        kind="custom",
        grouping=handlers.InTwos(),
        size=8,
        processes=1,
        timeout=timedelta(seconds=2),
    )

    assert (tally.handled, tally.parked) == (8, 0)
    assert len(notes("batch")) == 4


def test_what_was_done_before_a_kill_is_known():
    """Records of the same turn that ended before the one that hangs are not called again, and their messages go out."""
    fast = [make_record(offset, b"%d" % offset, b"") for offset in range(3000)]
    words = ["send one", "skip it", "fail", "nothing", "hang", "send two", "nothing"]
    keys = [0, 1, 2, 3, 3, 4, 3]
    tail = [
        make_record(3000 + at, b"key-%d" % key, word.encode())
        for at, (word, key) in enumerate(zip(words, keys, strict=True))
    ]
    sender = FakeSender()
    tally = run(handlers.obey_quickly, fast + tail, processes=1, timeout=timedelta(seconds=2), sender=sender)

    assert (tally.handled, tally.skipped, tally.parked) == (3004, 1, 2)
    assert Counter(line["offset"] for line in notes("begin")) == {3000 + at: 1 for at in range(7)}
    sent = [json.loads(message["value"])["rest"] for message in sender.acked if message["topic"] == "out"]
    assert sorted(sent) == ["one", "two"]
    # They were one turn: otherwise nothing was shown.
    first = [line["offset"] - 3000 for line in notes("begin")]
    assert first[:5] == [0, 1, 2, 3, 4]


def test_programs_that_a_handler_started_are_killed_with_it():
    """A call that is stopped does not go on in a process of its own."""
    run(handlers.obey, orders("family"), timeout=timedelta(seconds=3))

    program = notes("family")[0]["program"]
    eventually(lambda: not _lives(program), timeout=20, why="the end of the program")


def _lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# Crashes


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("segfault", "died of SIGSEGV"),
        ("exit 3", "ended with exit code 3"),
        ("exit 0", "ended with exit code 0"),
        ("kill", "died of SIGKILL; the kernel does that when memory runs out"),
    ],
)
def test_a_crash_is_a_failure_of_its_record(word, why):
    """It climbs the ladder with a clear reason, and nothing else is lost or done twice."""
    sender = FakeSender()
    tally = run(handlers.obey, orders("nothing", word, "nothing", "nothing", keys=[0, 1, 1, 2]), sender=sender)

    assert (tally.handled, tally.parked) == (3, 1)
    assert headers_of(sender.acked[0])["laneway-error-message"] == f"the process of handler 'handle' {why}"
    assert headers_of(sender.acked[0])["laneway-error-type"].endswith(".HandlerDiedError")
    assert Counter(line["offset"] for line in notes("begin")) == dict.fromkeys(range(4), 1)


def test_a_crash_tells_where_it_was():
    """The parked copy has the stack of the child."""
    sender = FakeSender()
    run(handlers.obey, orders("segfault"), sender=sender)

    trace = headers_of(sender.acked[0])["laneway-error-trace"]
    assert "Segmentation fault" in trace
    assert "in do_segfault" in trace


def test_a_crash_is_tried_again_like_any_failure():
    """Each try is in a new child."""
    tally = run(handlers.obey, orders("exit 1"), processes=1, retry=Retry(3, "1ms"))

    assert (tally.parked, tally.retried, tally.calls) == (1, 2, 3)
    assert len({line["pid"] for line in notes("begin")}) == 3


class _Pauses(threading.Event):
    """Tells how long was to be waited for the end of the run, and does not wait."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def wait(self, timeout=None):
        self.asked.append(timeout)
        return self.is_set()


def test_pauses_grow_while_children_die_again_and_again():
    """The first is replaced at once; a turn that goes well ends the count, and a kill at a time limit does not add."""
    for words, expected, limit in (
        (["exit 1"] * 5, [0.0, 0.0, 0.1, 0.2, 0.4], None),
        (["exit 1", "nothing", "exit 1", "nothing", "exit 1"], [0.0] * 3, None),
        (["hang"] * 3, [0.0] * 3, timedelta(seconds=0.3)),
    ):
        _, runner = make(handlers.obey, processes=1, timeout=limit)
        pauses = runner._over = _Pauses()
        runner.run(ListSource(orders(*words, keys=[0] * len(words))))

        assert pytest.approx(expected) == pauses.asked[: len(expected)]


def test_a_child_that_dies_while_it_waits_costs_no_record():
    """It is replaced, and what it was given runs."""
    source = _Later([*orders("nothing")], orders("nothing", "nothing", keys=[0, 1])[1:])
    processor, runner = make(handlers.obey, processes=1)

    def between():
        eventually(lambda: processor.tally.handled == 1, why="the first record")
        os.kill(notes("begin")[0]["pid"], signal.SIGKILL)
        source.go_on()

    thread = threading.Thread(target=between)
    thread.start()
    runner.run(source)
    thread.join()

    assert (processor.close().handled, processor.tally.parked) == (2, 0)
    assert len({line["pid"] for line in notes("begin")}) == 2


class _Later:
    """A source that gives some records, and others when it is told to."""

    def __init__(self, now, later):
        self._now, self._later = list(now), list(later)
        self._event = threading.Event()
        self.is_exhausted = False

    def go_on(self):
        self._event.set()

    def fetch(self, most, timeout):
        if not self._now and self._event.is_set():
            self._now, self._later = self._later, []
            self.is_exhausted = True
        given, self._now = self._now, []
        return given


def test_a_copy_of_a_dead_child_does_not_hide_its_death():
    """A process that the handler forked holds the line open; the death is seen all the same."""
    sender = FakeSender()
    began = time.monotonic()
    tally = run(handlers.obey, orders("orphan", "nothing", keys=[0, 0]), processes=1, sender=sender)

    assert (tally.handled, tally.parked) == (1, 1)
    assert "exit code 4" in headers_of(sender.acked[0])["laneway-error-message"]
    assert time.monotonic() - began < 19, "it waited for the copy, which lives for 20 s"


def test_nothing_is_lost_or_overtaken_while_children_are_killed():
    """Whenever a child is killed, each record ends, in the order of its key, and no call of a key overlaps another."""
    chance = random.Random(4711)
    words = chance.choices(["nothing", "work 0.03", "fail 1", "send x"], [3, 4, 1, 2], k=250)
    keys = [chance.randrange(12) for _ in words]
    sender = FakeSender()
    processor, runner = make(handlers.obey, processes=3, sender=sender, retry=Retry(20, "1ms", "5ms"), timeout=PLENTY)
    over = threading.Event()

    def kill_some():
        killed = 0
        while not over.wait(0.1) and killed < 15:  # more would only keep a busy machine starting children
            # Those that have begun to work: a machine that kills every child at its start is another matter.
            at_work = {line["pid"] for line in notes("begin")} & {child.pid for child in psutil.Process().children()}
            if at_work:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(chance.choice(sorted(at_work))).kill()
                    killed += 1

    killer = threading.Thread(target=kill_some)
    killer.start()
    try:
        runner.run(ListSource(orders(*words, keys=keys)))
    finally:
        over.set()
        killer.join()

    tally = processor.close()
    assert (tally.handled, tally.parked) == (250, 0)
    assert tally.retried > words.count("fail 1"), "no child was killed in a call"
    sent = Counter(json.loads(message["value"])["offset"] for message in sender.acked if message["topic"] == "out")
    assert sent == {offset: 1 for offset, word in enumerate(words) if word == "send x"}
    for key in set(keys):
        assert _is_in_order([line for line in notes() if line.get("key") == f"key-{key}"])


def _is_in_order(lines):
    """Whether calls of one key come one after the other; one that was killed has no end, also not a late one."""
    now, last = None, -1
    for line in lines:
        call = (line["pid"], line["offset"], line["attempt"])
        if line["what"] == "begin":
            if line["offset"] < last:
                return False
            now, last = call, line["offset"]
        elif call != now:
            return False
    return True


# Errors, messages and values


def test_errors_keep_type_text_and_trace():
    """A parked copy tells what it would tell of a handler on a thread."""
    sender = FakeSender()
    run(handlers.obey, orders("fail"), sender=sender)

    headers = headers_of(sender.acked[0])
    assert headers["laneway-error-type"] == "ValueError"
    assert headers["laneway-error-message"] == "planted"
    assert 'raise ValueError("planted")' in headers["laneway-error-trace"]
    assert "in do_fail" in headers["laneway-error-trace"]


def test_an_error_that_cannot_be_made_again_keeps_its_name_and_text():
    """Whatever its arguments are, the copy names it."""
    sender = FakeSender()
    run(handlers.obey, orders("break"), sender=sender)

    headers = headers_of(sender.acked[0])
    assert headers["laneway-error-type"] == "support.process_handlers.BrokenPickleError"
    assert headers["laneway-error-message"] == "broken (7)"
    assert "in do_break" in headers["laneway-error-trace"]


def test_signals_keep_their_meaning_when_they_cannot_be_pickled():
    """A rejected record is not tried again, and a delay that was asked for is kept, also by kinds of these signals."""
    tally = run(handlers.obey, orders("reject", "later"), retry=Retry(5, "3s", jitter=0))

    assert (tally.parked, tally.handled, tally.retried) == (1, 1, 1)
    pauses = [event.pause for event in tally.events if isinstance(event, RecordRetried)]
    assert pauses == [timedelta(milliseconds=1)]


def _raise(error):
    raise error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("text"),
        KeyError("k"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        OSError(2, "No such file"),
        ExceptionGroup("several", [ValueError("one")]),
        handlers.BrokenPickleError(7, "broken"),
        handlers.NoSuchError("order"),
        handlers.BadOrder(threading.Lock()),
        handlers.Later(),
        SystemExit(3),
        HandlerTimeoutError("late"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_error_crosses_the_border(error):
    """Its name, kind and text are the same on the other side, and its trace is a note."""
    with pytest.raises(type(error)) as raised:
        _raise(error)
    again = rebuilt(Raised.of(raised.value, Retry()))

    assert str(again) == str(error)
    assert [isinstance(again, kind) for kind in (Exception, Reject, RetryAfter, OSError, ValueError)] == [
        isinstance(error, kind) for kind in (Exception, Reject, RetryAfter, OSError, ValueError)
    ]
    assert isinstance(again, type(error)) or isinstance(error, ExceptionGroup)
    if not isinstance(error, SystemExit):
        assert (type(again).__module__, type(again).__qualname__) == (type(error).__module__, type(error).__qualname__)
        assert "raise error" in again.__notes__[-1]


@pytest.mark.parametrize(
    ("retriable", "calls"), [(handlers.NoSuchError, [1, 2, 3]), (handlers.is_busy, [1]), (OSError, [1])]
)
def test_what_is_retriable_is_decided_by_the_error_itself(retriable, calls):
    """By its type, also a user's own, and by a function of what it holds."""
    run(handlers.obey, orders("missing"), retry=Retry(3, "1ms", retriable=retriable))

    assert [line["attempt"] for line in notes("begin")] == calls


def test_messages_are_encoded_in_the_child_and_sent_by_the_parent():
    """They pass the produce interceptors there; a record is finished when they are acknowledged."""
    sender = FakeSender()
    tally = run(
        handlers.obey, orders("send a", "send b"), sender=sender, interceptors=Interceptors(produce=(handlers.stamped,))
    )

    assert (tally.handled, tally.produced) == (2, 2)
    assert sorted(json.loads(message["value"])["rest"] for message in sender.acked) == ["a", "b"]
    assert {int(headers_of(message)["made-by"]) for message in sender.acked} == {line["pid"] for line in notes("end")}


def test_a_message_that_cannot_leave_its_process_fails_its_record():
    """The record is parked, and the child goes on."""
    sender = FakeSender()
    tally = run(handlers.obey, orders("refuse", "nothing", keys=[0, 0]), processes=1, sender=sender)

    assert (tally.handled, tally.parked) == (1, 1)
    assert "object" in headers_of(sender.acked[0])["laneway-error-message"]
    assert len({line["pid"] for line in notes("begin")}) == 1


def test_large_values_travel_both_ways():
    """A megabyte in, three megabytes out, several times."""
    size = 3 << 20
    records = [make_record(offset, b"%d" % offset, b"blob %d " % size + b"x" * (1 << 20)) for offset in range(6)]
    sender = FakeSender()
    tally = run(handlers.obey, records, sender=sender)

    assert tally.handled == 6
    assert {line["size"] for line in notes("blob")} == {len(records[0].raw)}
    assert [len(message["value"]) for message in sender.acked] == [size] * 6


def test_values_are_decoded_in_the_child():
    """What a codec makes of a value need not be picklable; what it cannot read is parked at once."""
    sender = FakeSender()
    tally = run(
        handlers.read_secret,
        orders("one", "unreadable", "two"),
        topic=Topic("orders", value=handlers.Sealed()),
        sender=sender,
    )

    assert (tally.handled, tally.parked) == (2, 1)
    assert sorted(line["text"] for line in notes("read")) == ["one", "two"]


def test_a_record_that_kills_its_decoder_fails_alone():
    """It is the one that the child was at."""
    tally = run(
        handlers.read_secret,
        orders("one", "deadly", "two", keys=[0, 0, 0]),
        topic=Topic("orders", value=handlers.Sealed()),
    )

    assert (tally.handled, tally.parked) == (2, 1)
    assert [line["text"] for line in notes("read")] == ["one", "two"]


def test_error_interceptors_are_shown_decoded_values():
    """As they are when the handler runs on a thread."""
    seen = []

    def mask(message, record, error):
        seen.append((record.value.text, type(error).__name__))
        return message

    tally = run(
        handlers.read_secret,
        orders("fail", "fail"),
        topic=Topic("orders", value=handlers.Sealed()),
        interceptors=Interceptors(error=(mask,)),
        retry=Retry(2, "1ms"),
    )

    assert tally.parked == 2
    assert seen == [("fail", "ValueError")] * 2


def test_records_are_dropped_by_consume_interceptors_and_skipped_with_a_reason():
    """Both are counted as skipped, and those who want to know are told why."""
    tally = run(
        handlers.obey,
        orders("drop", "skip enough", "nothing"),
        interceptors=Interceptors(consume=(handlers.upper,)),
        wanted=frozenset({RecordSkipped}),
    )

    assert (tally.handled, tally.skipped) == (1, 2)
    assert sorted(event.error for event in tally.events) == ["dropped by consume interceptor 'upper'", "enough"]


# Batches


def test_batches_are_called_with_several_records():
    """No batch is above its size; marked members are parked, the others finished, and messages are sent."""
    sender = FakeSender()
    words = ["nothing"] * 20 + ["mark", "send x", "nothing"]
    tally = run(handlers.obey_all, orders(*words), kind="batch", size=10, sender=sender)

    assert (tally.handled, tally.parked) == (22, 1)
    assert max(len(line["offsets"]) for line in notes("batch")) <= 10
    assert sorted(offset for line in notes("batch") for offset in line["offsets"]) == list(range(23))
    assert [message["topic"] for message in sender.acked if message["topic"] == "out"] == ["out"]


def test_a_batch_that_hangs_fails_together():
    """Its records are tried again together, as after any failure, and then parked."""
    sender = FakeSender()
    tally = run(
        handlers.obey_all,
        orders("nothing", "hang", "nothing"),
        kind="batch",
        size=3,
        timeout=SHORT,
        sender=sender,
        retry=Retry(2, "1ms"),
        processes=1,
    )

    assert (tally.parked, tally.retried) == (3, 3)
    assert [sorted(line["offsets"]) for line in notes("batch")] == [[0, 1, 2]] * 2
    assert {headers_of(copy)["laneway-error-type"] for copy in sender.acked} == {"laneway.errors.HandlerTimeoutError"}


@pytest.mark.parametrize("word", ["hang", "exit 6"])
def test_bisect_finds_the_record_that_stops_its_process(word):
    """Halves are called in new children; what was handled is not called again, so each other record ends once."""
    tally = run(
        handlers.obey_all,
        orders(*["nothing"] * 5, word, "nothing", "nothing"),
        kind="batch",
        size=8,
        bisect=True,
        timeout=timedelta(seconds=1.5),
        processes=1,
    )

    assert (tally.handled, tally.parked) == (7, 1)
    assert [line["offsets"] for line in notes("batch")] == [
        [0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [4], [5], [6, 7],
    ]  # fmt: skip


def test_groups_that_were_handled_are_not_called_again():
    """A kind's group that kills its child fails alone."""
    sender = FakeSender()
    tally = run(
        handlers.obey_all,
        orders("send a", "nothing", "mark", "nothing", "exit 1", "nothing", "send b", "nothing"),
        kind="custom",
        grouping=handlers.InTwos(),
        size=8,
        processes=1,
        sender=sender,
    )

    assert (tally.handled, tally.parked) == (5, 3)
    assert [line["offsets"] for line in notes("batch")] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    sent = [json.loads(message["value"])["rest"] for message in sender.acked if message["topic"] == "out"]
    assert sent == ["a", "b"]


def test_the_newest_record_of_a_key_stands_for_the_older_ones():
    """Those that it supersedes end with it, also when its process dies."""
    tally = run(
        handlers.obey_all, orders("segfault", "nothing", "nothing", "exit 1", keys=[0, 0, 1, 1]), kind="unique", size=4
    )

    assert (tally.handled, tally.superseded, tally.parked) == (0, 2, 2)
    assert [line["offsets"] for line in notes("batch")] == [[1, 3]]


@pytest.mark.parametrize(("kind", "parked"), [("batch", 3), ("unique", 2)])
def test_a_batch_whose_decoder_dies_is_parked_and_not_lost(kind, parked):
    """Which record it was cannot be told outside of a call; after a second try all of them fail."""
    sender = FakeSender()
    tally = run(
        handlers.obey_all,
        orders("nothing", "deadly", "nothing", keys=[0, 0, 1]),
        kind=kind,
        size=3,
        topic=Topic("orders", value=handlers.Sealed()),
        sender=sender,
    )

    assert (tally.handled, tally.parked, tally.superseded) == (0, parked, 3 - parked)
    assert notes("batch") == []
    assert len(notes("deadly")) == 2
    assert {headers_of(copy)["laneway-error-message"] for copy in sender.acked} == {
        "the process of handler 'handle' ended with exit code 5"
    }


# The life of children


def test_setups_run_once_in_each_child_and_cleanups_at_its_end():
    """Before its first record and after its last; an async one is awaited, and one that fails does not stop another."""
    run(
        handlers.obey,
        orders(*["work 0.02"] * 40),
        setups=(handlers.open_pool, handlers.open_async),
        cleanups=(handlers.cleanup_fails, handlers.close_pool),
    )

    by_child = {}
    for line in notes():
        by_child.setdefault(line["pid"], []).append(line["what"])
    assert len(by_child) == 2
    for what in by_child.values():
        assert what[:2] == ["setup", "setup-async"]
        assert what[-1] == "cleanup"
        assert set(what[2:-1]) == {"begin", "end"}


def test_children_that_are_kept_work_in_several_runs():
    """They are set up once, also when one dies between two runs, and clean up when the runner is closed."""
    hooks = {"setups": (handlers.open_pool,), "cleanups": (handlers.close_pool,)}
    processor, runner = make(handlers.obey, is_kept=True, **hooks)

    def run_until(children):
        # Several runs: on a busy machine one child may be through with a run before the other is ready.
        nonlocal processor
        for _ in range(100):
            runner.run(ListSource(orders(*["work 0.02"] * 10)))
            assert (processor.close().handled, processor.tally.parked) == (10, 0)
            assert notes("cleanup") == []
            processor, _ = make(handlers.obey)
            runner.take_on(processor)
            if len({line["pid"] for line in notes("begin")}) == children:
                return
        raise AssertionError(f"not {children} children have worked: {notes('begin')}")

    run_until(2)
    for _ in range(3):
        run_until(2)
    killed = notes("begin")[-1]["pid"]
    os.kill(killed, signal.SIGKILL)
    run_until(3)
    runner.close()
    assert len(notes("setup")) == 3
    assert killed not in {line["pid"] for line in notes("cleanup")}
    assert len(notes("cleanup")) == 2


def test_a_run_that_fails_ends_children_that_are_kept():
    """What they were at may go on in no process."""
    processor, runner = make(handlers.obey, is_kept=True)
    runner.run(ListSource(orders("nothing", "nothing")))
    processor.close()
    processor, _ = make(handlers.obey)
    runner.take_on(processor)

    class Broken(ListSource):
        def fetch(self, most, timeout):
            raise ConnectionError

    with pytest.raises(ConnectionError):
        runner.run(Broken(orders("nothing")))


def test_a_child_that_replaces_another_is_set_up_too():
    """And a child that was killed cleans nothing up."""
    run(
        handlers.obey,
        orders("exit 1", "nothing", keys=[0, 0]),
        processes=1,
        setups=(handlers.open_pool,),
        cleanups=(handlers.close_pool,),
    )

    assert [line["what"] for line in notes()] == ["setup", "begin", "setup", "begin", "end", "cleanup"]


def test_a_setup_that_fails_ends_the_run():
    """With the reason, and no record is called."""
    _, runner = make(handlers.obey, setups=(handlers.setup_fails,))
    with pytest.raises(
        EngineError, match="setup 'setup_fails' failed in a child process: ConnectionError: no database"
    ):
        runner.run(ListSource(orders("nothing")))

    assert notes("begin") == []


def test_children_that_die_before_they_are_ready_end_the_run():
    """After a few tries, because no record is to blame and none can be run."""
    _, runner = make(handlers.obey, processes=1, setups=(handlers.setup_dies,))
    with pytest.raises(HandlerDiedError, match=r"5 child processes of handler 'handle' died .* ended with exit code 9"):
        runner.run(ListSource(orders("nothing")))

    assert len(notes("dies")) == 5


def test_children_ignore_signals_that_are_for_the_parent():
    """A terminal's Ctrl-C and a service manager's SIGTERM reach every process."""
    tally = run(handlers.obey, orders("signals", "signals"), processes=1)

    assert (tally.handled, tally.parked) == (2, 0)
    assert len({line["pid"] for line in notes("begin")}) == 1


def test_a_signal_to_all_processes_does_not_end_a_child_that_is_starting():
    """Not even in the moment before it can say what it does with signals."""
    processor, runner = make(handlers.obey, processes=1)
    seen, over = set(), threading.Event()
    others = set(psutil.Process().children())  # such as the broker of the whole test run

    def disturb():
        while not over.wait(0.0005):
            for child in set(psutil.Process().children()) - others:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.send_signal(signal.SIGTERM)
                    child.send_signal(signal.SIGINT)
                seen.add(child.pid)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        runner.run(ListSource(orders("work 0.1")))
    finally:
        over.set()
        thread.join()

    assert processor.close().handled == 1
    assert len(seen) == 1


def test_a_source_that_fails_ends_the_children_in_the_middle_of_a_call():
    """When the run has raised, no call goes on: the records may be read elsewhere at once."""
    _, runner = make(handlers.obey, timeout=PLENTY)
    source, others = _Later(orders("hang", "hang"), []), lane_threads()

    def fetch(most, timeout):
        if len(notes("begin")) == 2:
            raise OSError("gone")
        return _Later.fetch(source, most, timeout)

    source.fetch = fetch
    with pytest.raises(OSError, match="gone"):
        runner.run(source)

    assert [pid for pid in {line["pid"] for line in notes("begin")} if _lives(pid)] == []
    assert lane_threads() <= others


def test_a_bug_in_our_own_code_ends_the_run():
    """What the processor raises in a lane comes out of run, and the child that hangs meanwhile is killed."""
    processor, runner = make(handlers.obey)

    def broken(turn, result):
        raise RuntimeError("a bug")

    processor.settle = broken
    with pytest.raises(RuntimeError, match="a bug"):
        runner.run(ListSource(orders("nothing", "hang")))


def test_an_exit_in_a_handler_ends_the_run():
    """SystemExit is not a failure of a record."""
    _, runner = make(handlers.obey)
    with pytest.raises(SystemExit) as exit_:
        runner.run(ListSource(orders("leave 3")))

    assert exit_.value.code == 3


def test_an_empty_source_is_no_work():
    """A run over nothing ends at once, without a child."""
    assert run(handlers.obey, [], setups=(handlers.open_pool,)).read == 0
    assert notes() == []


def test_no_more_children_are_started_than_there_are_records():
    """Eight are allowed, two records wait."""
    processor, runner = make(handlers.obey, processes=8)
    runner.run(ListSource(orders("work 0.01", "work 0.01")))

    assert processor.close().handled == 2
    assert 1 <= len(runner._lanes) <= 2


@pytest.mark.parametrize("word", ["hang", "spin"])
def test_children_end_with_a_parent_that_is_killed(word, tmp_path):
    """A child in the middle of a call ends with it, and so does one that waits."""
    script = tmp_path / "parent.py"
    script.write_text(_PARENT.format(words=[word, "nothing"]))
    parent = subprocess.Popen([sys.executable, str(script)], env=_env())
    try:
        pids = eventually(lambda: {line["pid"] for line in notes("begin")} if len(notes("begin")) == 2 else None)
        assert all(map(_lives, pids))
        parent.kill()
        parent.wait()
        eventually(lambda: not any(map(_lives, pids)), timeout=20, why="the end of the children")
    finally:
        parent.kill()
        parent.wait()
        _kill_all(line["pid"] for line in notes("begin"))


_PARENT = """
from laneway._clock import SystemClock
from laneway._core.processor import Processor
from laneway._runtime.runners import ProcessRunner
from support import process_handlers as handlers
from support.core import FakeSender, ListSource, make_record, make_route

if __name__ == "__main__":
    route = make_route(handlers.obey, lanes=2)
    processor = Processor([route], "billing", lanes=2, sender=FakeSender(), clock=SystemClock())
    records = [make_record(at, b"%d" % at, word.encode()) for at, word in enumerate({words!r})]
    source = ListSource(records, error=OSError("never"))
    source.fetch_more, source.fetch = source.fetch, lambda *given: source.fetch_more(*given) if source._records else []
    ProcessRunner(processor, route, SystemClock(), processes=2).run(source)
"""


def _env():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def _kill_all(pids):
    for pid in set(pids):
        if _lives(pid):
            os.kill(pid, signal.SIGKILL)


# Declarations


_SCRIPT = """
import sys
from laneway import Topic
from laneway._clock import SystemClock
from laneway._declare.interceptors import Interceptors
from laneway.codecs import Json
from laneway._core.processor import Processor
from laneway._runtime.runners import ProcessRunner
from support.core import FakeSender, ListSource, make_record, make_route

class Odd(Exception):
    pass

def handle(record):
    if record.raw == b"odd":
        raise Odd("an error of the script's own")
    return Topic("out", Json()).message(sys.argv[1:])

def known(message, record, error):
    return message.replaced(value=b"known" if type(error) is Odd else b"not known")

def main():
    route = make_route(handle, lanes=2, interceptors=Interceptors(error=(known,)))
    sender = FakeSender()
    processor = Processor([route], "billing", lanes=2, sender=sender, clock=SystemClock())
    records = [make_record(0, b"1", b"fine"), make_record(1, b"2", b"odd")]
    ProcessRunner(processor, route, SystemClock(), processes=1).run(ListSource(records))
    for message in sender.acked:
        print(message["topic"], message["value"], dict(message["headers"]).get("laneway-error-type"))

"""


def _run_script(tmp_path, text):
    script = tmp_path / "billing.py"
    script.write_text(_SCRIPT + text)
    return subprocess.run(
        [sys.executable, str(script), "--flag"], env=_env(), capture_output=True, text=True, timeout=100, check=False
    )


def test_handlers_of_the_script_that_is_run_are_found(tmp_path):
    """A child imports the parent's main module under another name; errors that are defined there stay what they are."""
    done = _run_script(tmp_path, 'if __name__ == "__main__":\n    main()\n')

    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == [
        """orders.billing.error b'known' b'__main__.Odd'""",
        """out b'["--flag"]' None""",
    ]


def test_a_script_that_runs_its_app_when_imported_is_refused(tmp_path):
    """Otherwise each child would start children."""
    done = _run_script(tmp_path, "main()\n")

    assert done.returncode == 1
    assert 'put the run below if __name__ == "__main__":' in done.stderr.splitlines()[-1]


def test_what_cannot_be_sent_is_refused_with_what_to_do():
    """Before anything is started, and it is named."""
    for fields, words in (
        ({"function": lambda record: None}, "its function cannot be sent"),
        ({"interceptors": Interceptors(consume=(lambda record: record,))}, "interceptor '<lambda>' cannot be sent"),
        ({"setups": (lambda: None,)}, "setup or cleanup '<lambda>' cannot be sent"),
    ):
        with pytest.raises(DeclarationError, match=f"handler 'handle': {words} .*top level of a module"):
            make(**{"function": handlers.obey, **fields})


def test_what_stays_in_the_parent_need_not_be_sent():
    """Lambdas are fine for what no child calls."""
    tally = run(
        handlers.obey,
        orders("fail", "nothing"),
        order_by=lambda record: record.raw,
        interceptors=Interceptors(error=(lambda message, record, error: message,)),
        error_function=lambda record: None,
    )

    assert (tally.handled, tally.parked) == (1, 1)


async def _async_handler(record):
    pass


def test_handlers_that_gain_nothing_from_processes_are_refused():
    """Async and columnar ones, with what to do; and there is at least one process."""
    with pytest.raises(DeclarationError, match="async handler uses lanes="):
        make(_async_handler)
    with pytest.raises(DeclarationError, match="columnar handler takes tables"):
        make(handlers.obey, kind="columnar")
    with pytest.raises(DeclarationError, match="processes=0; at least 1"):
        make(handlers.obey, processes=0)


# The reader


def test_a_breaker_stops_a_turn_at_the_first_failure():
    """No further call begins before it has had its say; when it closes all records are run, and none is parked."""
    records = [make_record(offset, b"%d" % offset, b"") for offset in range(2000)]
    records += [make_record(2000 + at, b"key-%d" % at, b"outage 4") for at in range(5)]
    processor, runner = make(handlers.obey_quickly, processes=1, breaker=Breaker(1, "50ms", "50ms"))

    class Parted(ListSource):
        """Gives the last five when the others are handled: one that is left over would be a probe that succeeds."""

        def fetch(self, most, timeout):
            left = 2000 - self.given
            return super().fetch(most if processor.tally.handled >= 2000 else min(most, left), timeout)

    runner.run(Parted(records))
    tally = processor.close()

    assert (tally.handled, tally.parked, tally.breaker_opened) == (2005, 0, 1)
    times = [line["at"] for line in notes("begin")]
    assert all(later - earlier > 0.049 for earlier, later in itertools.pairwise(times[:4]))


@pytest.mark.parametrize(
    ("word", "breaker", "called"),
    [
        ("fail", None, [0, 2, 4]),
        ("fail", Breaker(5), [0]),
        ("reject", Breaker(5), [0, 2, 4]),
        ("skip it", Breaker(5), [0, 1, 2, 3, 4]),
        ("work 0.003", None, [0]),
    ],
)
def test_what_a_turn_leaves_out(word, breaker, called, monkeypatch):
    """The rest of a key after a failure, all of it when a breaker is to decide, and what comes after its slice."""
    monkeypatch.setattr(_child, "_SLICE", 0.002 if word.startswith("work") else 60.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        rows = [row_of(record) for record in orders(*[word] * 5)]
        _child._Calls(make_route(handlers.obey, breaker=breaker), theirs).obey(
            RunTurn([rows[0:2], rows[2:4], rows[4:]])
        )
        received, said = bytearray(ours.recv(1 << 16)), []
        while (frame := take_frame(received)) is not None:
            said.append(decode_answer(frame))

    assert [line["offset"] for line in notes("begin")] == called
    assert [progress.begins for progress in said] == [*called, -1]
    assert [progress.ended for progress in said] == [-1, *called]
    assert said[-1].seconds > 0


def test_a_blocked_handler_bounds_what_is_read():
    """The source is not read beyond the buffer while nothing is finished."""
    processor, runner = make(handlers.obey, buffer=Buffer(10), timeout=timedelta(seconds=3))
    source = ListSource(orders("hang", *["nothing"] * 40))
    seen = []
    thread = threading.Thread(
        target=lambda: (eventually(lambda: notes("begin"), why="a call"), seen.append(source.given))
    )
    thread.start()
    runner.run(source)
    thread.join()

    assert seen[0] <= 41
    assert processor.close().handled == 40


def test_wake_makes_it_look_at_once(monkeypatch):
    """A reader that would sleep for a minute sees what has changed when it is woken."""
    monkeypatch.setattr(_threads, "_LOOK", 60.0)
    source = _Later(orders("nothing"), [])
    source.announces, source.has_news = True, False
    processor, runner = make(handlers.obey)

    def later():
        eventually(lambda: processor.tally.handled, why="the first record")
        time.sleep(0.2)
        source.go_on()
        runner.wake()

    thread = threading.Thread(target=later)
    began = time.monotonic()
    thread.start()
    runner.run(source)
    thread.join()

    assert processor.close().handled == 1
    assert time.monotonic() - began < 50


def test_many_records_of_many_keys():
    """A fast handler gets many a turn, and every one of them is handled once."""
    tally = run(handlers.does_nothing, make_records(20_000, keys=700))

    assert (tally.read, tally.handled, tally.calls) == (20_000, 20_000, 20_000)


def test_nothing_is_being_loaded_here():
    """The guard against scripts that run when they are imported is only up in children."""
    assert not LOADING.is_set()
