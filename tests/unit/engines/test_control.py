"""The control connection: who may connect, what may be said, and what is known after it was cut."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
from msgspec.structs import replace as replace_struct

from laneway._core.breaker import BreakerState
from laneway._core.locate import HandlerStatus, Location
from laneway._core.outbox import Trouble
from laneway._declare.health import Level
from laneway._engines.spark import control
from laneway._engines.spark.control_link import ControlLine, ControlLink, send_log_lines
from laneway._engines.spark.control_server import ControlServer
from laneway._engines.spark.driver import SparkDriver
from laneway._engines.spark.health import QueriesHealth
from laneway._engines.spark.plan import Position
from laneway._engines.spark.query_spec import QuerySpec
from laneway._runtime.topics import Feed
from laneway.observe import RecordSkipped, Tally
from support.waiting import eventually


@contextmanager
def listening():
    """A server on this machine."""
    server = ControlServer()
    server.listen("127.0.0.1")
    try:
        yield server
    finally:
        server.close()


@contextmanager
def linked(address):
    """A connection of its own, as another process would have it."""
    link = ControlLink(address)
    try:
        yield link
    finally:
        link.is_over = True


def cut(server):
    """Cut the connections that there are."""
    before = set(server._connected)
    server.cut()
    eventually(lambda: not before & server._connected)


def is_ended(sock):
    """Whether the other side has closed, whatever it said before."""
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def test_orders_go_out_and_answers_come_in():
    """Both are whole and newest: what is not changed stays."""
    with listening() as server:
        channel, other = server.channel(), server.channel()
        channel.order(tasks=3)
        with linked(channel.address) as link:
            eventually(lambda: link.orders(1).tasks == 3)
            channel.order(pause=2)
            eventually(lambda: link.orders(1).pause == 2)
            assert link.orders(1).tasks == 3
            assert link.orders(2) == control.Orders(2)
            link.say(control.Answer(1, paused=2))
            eventually(lambda: channel.answer.paused == 2)
            assert other.answer == control.Answer(2)


def test_a_wrong_token_is_refused(caplog):
    """It learns nothing and changes nothing, and the driver says so."""
    with listening() as server:
        channel = server.channel()
        channel.order(tasks=3)
        wrong = replace(channel.address, token=bytes(32))
        with linked(wrong) as link:
            link.say(control.Answer(1, is_drained=True))
            eventually(lambda: "does not know the token" in caplog.text)
            assert not link.is_connected
            assert link.orders(1).tasks == 0
        assert not channel.answer.is_drained
        assert server.connections == 0


def test_a_driver_without_the_token_gives_no_orders():
    """Another program may listen on the port of a driver that is gone."""
    impostor = socket.create_server(("127.0.0.1", 0))
    seen = threading.Event()

    def serve():
        sock, _ = impostor.accept()
        with sock:
            sock.sendall(control.frame(control._Challenge(bytes(32))))
            sock.recv(4096)
            sock.sendall(control.frame(control._Proof(bytes(32), bytes(32))))
            sock.sendall(control.frame(control.Orders(1, is_stopping=True)))
            is_ended(sock)
            seen.set()

    thread = threading.Thread(target=serve)
    thread.start()
    address = control.ControlAddress(*impostor.getsockname(), b"secret", 1)
    with linked(address) as link:
        assert seen.wait(10)
        assert not link.orders(1).is_stopping
    impostor.close()
    thread.join()


@pytest.mark.parametrize("is_known", [False, True], ids=["before the login", "after the login"])
def test_a_frame_that_is_too_long_is_refused(caplog, is_known):
    """Its length is looked at before any of it is read."""
    with listening() as server:
        address = server.channel().address
        length = control.LIMIT + 1 if is_known else 2_000

        async def send():
            reader, writer = await asyncio.open_connection(address.host, address.port)
            if is_known:
                await control.prove_as_process(reader, writer, address.token)
            writer.write(length.to_bytes(4, "big"))
            while await reader.read(4096):
                pass
            writer.close()

        asyncio.run(asyncio.wait_for(send(), 10))
        eventually(lambda: "exceeds the limit" in caplog.text)


@pytest.mark.parametrize("data", [pickle.dumps(print), b"\xc1", control.frame(control.Orders(1, is_stopping=True))[4:]])
def test_only_known_messages_are_read(caplog, data):
    """A pickle, rubbish, and a message that only the driver sends end the connection."""
    with listening() as server:
        channel = server.channel()

        async def send():
            reader, writer = await asyncio.open_connection(channel.address.host, channel.address.port)
            await control.prove_as_process(reader, writer, channel.address.token)
            writer.write(len(data).to_bytes(4, "big") + data)
            with suppress(ConnectionError):  # the server may close before it has read everything
                while await reader.read(4096):
                    pass
            writer.close()

        asyncio.run(asyncio.wait_for(send(), 10))
        eventually(lambda: "invalid frame" in caplog.text)


def test_after_a_cut_both_sides_know_the_newest():
    """What was ordered and said while there was no connection arrives with the next one."""
    with listening() as server:
        channel = server.channel()
        with linked(channel.address) as link:
            eventually(lambda: link.is_connected)
            link.say(control.Answer(1, paused=1))
            eventually(lambda: channel.answer.paused == 1)
            cut(server)
            channel.order(pause=7)
            link.say(control.Answer(1, paused=7))
            eventually(lambda: link.orders(1).pause == 7 and channel.answer.paused == 7)


def test_a_line_waits_for_a_connection():
    """What a task has to say while there is none is kept."""
    with listening() as server:
        channel = server.channel()
        with linked(channel.address) as link:
            link.post(control.Notice(1, "waits"))
            eventually(lambda: channel.notices() == ["waits"])


def test_figures_are_those_of_the_newest_attempt_until_its_batch_is_over():
    """A task that is tried again replaces the one that failed; what comes late of a batch that is over is dropped."""
    channel = ControlServer().channel()
    for task, attempt, handled in [(0, 10, 5), (1, 11, 1), (0, 12, 2), (0, 10, 6)]:
        channel.received(control.Figures(1, task, attempt, Tally(handled=handled)))
    assert sorted((figures.attempt, figures.tally.handled) for figures in channel.running()) == [(11, 1), (12, 2)]
    channel.batch_over([11, 12])
    channel.received(control.Figures(1, 1, 11, Tally(handled=9)))
    assert channel.running() == []


def test_counts_and_events_of_a_running_task_come_in():
    """As often as once a second, without the task's doing."""
    with listening() as server:
        channel = server.channel()
        tally = Tally(handled=3)
        with linked(channel.address) as link:
            link.watch(1, 0, 5, tally)
            eventually(lambda: [figures.tally.handled for figures in channel.running()] == [3])
            tally.handled = 4
            tally.events.append(RecordSkipped("charge", "orders", 0, 1, 1, "why"))
            eventually(lambda: [figures.tally.events for figures in channel.running()] == [tally.events])
            link.unwatch(1, 0)


def test_a_breaker_that_one_process_opened_is_open_in_the_next():
    """A process that connects later takes it over; one that knows better is not told of the past."""
    with listening() as server:
        channel = server.channel()
        state = BreakerState()
        with linked(channel.address) as link, linked(channel.address) as other:
            link.watch_breaker("billing", "charge", state)
            state.is_open, state.failures, state.probe_at = True, 3, 1e9
            eventually(lambda: ("billing", "charge") in other._received)
            with linked(channel.address) as late:
                eventually(lambda: ("billing", "charge") in late._received)
                taken = BreakerState()
                late.watch_breaker("billing", "charge", taken)
                assert taken.is_open
                assert taken.failures == 3
                assert abs(taken.probe_at - 1e9) < 5
            cut(server)
            eventually(lambda: link.is_connected)
            assert ("billing", "charge") not in link._received


def test_log_lines_of_a_worker_are_logged_by_the_driver(caplog):
    """With their logger and level."""
    with listening() as server, linked(server.channel().address) as link:
        eventually(lambda: link.is_connected)
        root, ours = logging.getLogger(), logging.getLogger("laneway")
        before = (list(root.handlers), list(ours.handlers), ours.level, ours.propagate)
        try:
            send_log_lines(link)
            worker = logging.LogRecord("laneway.kafka", logging.ERROR, "", 0, "no %s", ("leader",), None)
            (ours.handlers + root.handlers)[-1 if not ours.handlers else 0].handle(worker)
        finally:
            root.handlers[:], ours.handlers[:] = before[0], before[1]
            ours.setLevel(before[2])
            ours.propagate = before[3]
        eventually(lambda: ("laneway.kafka", logging.ERROR, "no leader") in caplog.record_tuples)


def test_the_end_of_a_run_ends_the_connection():
    """Workers of a session that lives on do not look for the driver of a run that is over."""
    with listening() as server:
        link = ControlLink(server.channel().address)
        eventually(lambda: link.is_connected)
    eventually(lambda: link.is_over)


def test_a_process_is_connected_once():
    """Whatever queries it works for; a run of its own has a connection of its own."""
    with listening() as server:
        first, second = server.channel().address, server.channel().address
        assert ControlLink.of(first) is ControlLink.of(second)
        assert ControlLink.of(replace(first, token=bytes(32))) is not ControlLink.of(first)


def test_without_a_connection_a_notice_is_logged(caplog):
    """On one line."""
    ControlLine(None).note("cannot write to x:\n down")
    assert caplog.messages == ["cannot write to x: down"]


def test_the_token_is_not_shown():
    """Neither by the address nor by what holds it."""
    with listening() as server:
        address = server.channel().address
        assert repr(address.token) not in repr(address)


class Query:
    """The part of a query that a driver asks."""

    def __init__(self):
        self.is_batch_over = threading.Event()
        self.said = ["cannot write to orders.billing.error: 2 of 3 replicas are in sync"]

    def notices(self):
        said, self.said = self.said, []
        return said

    def new_events(self):
        return []


def test_the_state_says_what_a_batch_waits_for_until_it_is_over():
    """The view and whatever asks for health see topic and reason, and see them go."""
    seen, query = [], Query()
    driver = SparkDriver.__new__(SparkDriver)
    driver._says, driver._listener = False, SimpleNamespace(note=seen.append)
    driver._show(query)
    query.is_batch_over.set()
    driver._show(query)
    assert seen == ["cannot write to orders.billing.error: 2 of 3 replicas are in sync", ""]


def a_status(task=0, attempt=1, low=3, **rest):
    """What a task says that has read up to offset 9 of a partition."""
    location = Location(code="running", has_key=True, key=b"k", seconds=4.0)
    handler = HandlerStatus("charge", busy=2, lanes=4, **rest)
    return control.TaskStatus(1, task, attempt, handler, [("orders", 0, low, 9)], [(("orders", 0, low), location)])


@contextmanager
def watched():
    """What the driver knows of a query whose brokers are never asked."""
    server = ControlServer()
    channel = server.channel()
    stream = QuerySpec(
        app="billing", topic="orders", routes=("charge",), payload=b"", paths=(), consumer={}, producer={},
        client={"bootstrap.servers": "127.0.0.1:1"}, feeds=(Feed("orders", ("charge",)),),
    )  # fmt: skip
    [found] = QueriesHealth.of([(stream, channel)], server)
    yield found, channel, server


def test_statuses_of_tasks_become_a_snapshot():
    """How far it was read, and where the first unfinished record is; between batches, what was committed."""
    with watched() as (found, channel, _):
        channel.received(a_status())
        seen = found.look()
        assert seen.partitions["orders", 0][:3] == (3, 9, 3)
        [located] = found.locate([("orders", 0, 3)])
        assert (located.handler.handler, located.location.code, located.location.key) == ("charge", "running", b"k")
        assert found.locate([("orders", 0, 4)]) == []

        channel.batch_over([1])
        channel.progress = control.Progress(1, 1, [("charge", "orders", 0, Position(9))])
        seen = found.look()
        assert seen.partitions["orders", 0][:2] == (9, 9)
        assert seen.partitions["orders", 0].waits == "no micro-batch is running"
        assert list(seen.owned) == [("orders", 0)]
        # A status that comes late is that of a batch which is over.
        channel.received(a_status())
        assert found.look().partitions["orders", 0].low == 9


def test_the_tasks_of_a_handler_are_one():
    """Their lanes add up, and what one of them found of a topic or breaker counts once."""
    trouble = Trouble("orders.error", "no", 1, 2.0)
    with watched() as (found, channel, server):
        channel.received(a_status(0, troubles=(trouble,)))
        channel.received(a_status(1, low=4, troubles=(trouble,)))
        server._receive(control.BreakerReport("billing", "charge", True, 3, 0, 5.0, 9.0, "E: closed"), None)
        [handler] = found.look().handlers
    assert (handler.busy, handler.lanes, handler.troubles) == (4, 8, (trouble,))
    assert (handler.breaker.failures, handler.breaker.error) == (3, "E: closed")


def test_a_task_that_says_nothing_for_long_is_critical(monkeypatch):
    """Its process hangs or was suspended, and cannot say so itself."""
    with watched() as (found, channel, _):
        channel.received(a_status())
        assert found.look().findings == []
        channel._statuses[0] = (channel._statuses[0][0] - 12, channel._statuses[0][1])
        [finding] = found.look().findings
    assert (finding.level, finding.code) == (Level.CRITICAL, "silent")
    assert "has sent no status for 12s" in finding.text


def test_a_status_goes_from_a_task_to_the_driver():
    """Once a second, with what blocks a partition that has not moved meanwhile."""
    look = SimpleNamespace(look=lambda: (a_status().handler, a_status().partitions, a_status().locations))
    with listening() as server:
        channel = server.channel()
        with linked(channel.address) as link:
            link.watch(1, 7, 3, Tally(), look)
            [(age, status)] = eventually(channel.statuses, timeout=20)
            assert age < 10
            assert status == replace_struct(a_status(), task=7, attempt=3)
            link.unwatch(1, 7)
            channel.batch_over([3])
            assert channel.statuses() == []


def test_tasks_answer_at_once_when_they_are_asked():
    """And a driver that asks does not wait long for one that does not."""
    looks = []
    look = SimpleNamespace(
        look=lambda: (looks.append(1), (a_status().handler, a_status().partitions, a_status().locations))[1]
    )
    with listening() as server:
        channel = server.channel()
        with linked(channel.address) as link:
            link.watch(1, 7, 3, Tally(), look)
            eventually(channel.statuses, timeout=20)
            before = len(looks)
            began = time.monotonic()
            for _ in range(5):
                channel.ask(20.0)
            assert len(looks) >= before + 5
            assert time.monotonic() - began < 4  # five looks once a second would take as long
        cut(server)
        began = time.monotonic()
        channel.ask(0.2)
        assert time.monotonic() - began < 10
