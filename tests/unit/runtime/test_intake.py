"""The way from the thread that reads to the one that runs: nothing is lost, nothing changes places."""

from __future__ import annotations

import threading

from laneway._runtime.intake import Intake
from support.core import make_record, make_records


def test_records_come_out_as_they_went_in():
    """In order, however they are cut."""
    intake = Intake()
    records = make_records(25)
    intake.put(records[:10])
    intake.put(records[10:])
    taken = []
    while found := intake.fetch(4, 0):
        assert len(found) <= 4
        taken += found

    assert taken == records


def test_a_fetch_takes_as_many_lists_as_it_may():
    """And cuts the last one, whose rest comes next, in order."""
    intake, records = Intake(), make_records(10)
    for start in (0, 3, 6):
        intake.put(records[start : start + 3])
    intake.put(records[9:])

    assert intake.fetch(7, 0) == records[:7]
    assert (intake.records, intake.has_news) == (3, True)
    assert intake.fetch(7, 0) == records[7:]
    assert (intake.records, intake.size, intake.has_news) == (0, 0, False)


def test_it_knows_what_it_holds():
    """Records and bytes, so that whoever reads knows when to stop."""
    intake = Intake()
    records = make_records(10)
    intake.put(records)
    assert (intake.records, intake.size, intake.has_news) == (10, sum(record.size for record in records), True)
    intake.fetch(3, 0)
    assert (intake.records, intake.size) == (7, sum(record.size for record in records[3:]))
    intake.fetch(100, 0)
    assert (intake.records, intake.size, intake.has_news) == (0, 0, False)


def test_it_announces_what_arrives_at_an_empty_intake():
    """Once, until it is empty again: the runner that was woken takes out all there is."""
    intake = Intake()
    woken = []
    intake.arrived = lambda: woken.append(intake.records)
    intake.put(make_records(2))
    intake.put(make_records(3))
    assert woken == [2]
    while intake.fetch(100, 0):
        pass
    intake.put(make_records(1))
    assert woken == [2, 1]


def test_a_fetch_waits_for_what_arrives():
    """It returns with the first records, not at the end of its patience."""
    intake = Intake()
    threading.Timer(0.05, intake.put, [make_records(2)]).start()

    assert len(intake.fetch(10, 30)) == 2


def test_a_fetch_of_nothing_ends():
    """When nothing arrives, nothing is given."""
    assert Intake().fetch(10, 0.01) == []


def test_the_end_wakes_whoever_waits():
    """An intake that ends is exhausted, whatever it still holds: that was not begun, and is read again."""
    intake = Intake()
    woken = threading.Event()
    intake.arrived = woken.set
    threading.Timer(0.05, intake.end).start()

    assert intake.fetch(10, 30) == []
    assert woken.wait(30)
    assert intake.is_exhausted


def test_many_threads_put_and_one_takes():
    """Each record comes out once, and those of each partition in their order."""
    intake = Intake()

    def put(partition):
        for offset in range(0, 2_000, 5):
            intake.put([make_record(at, partition=partition) for at in range(offset, offset + 5)])

    threads = [threading.Thread(target=put, args=(partition,)) for partition in range(4)]
    for thread in threads:
        thread.start()
    taken = []
    while len(taken) < 8_000 and (found := intake.fetch(7, 30)):
        taken += found
    for thread in threads:
        thread.join()

    assert {
        partition: [record.offset for record in taken if record.partition == partition] for partition in range(4)
    } == {partition: list(range(2_000)) for partition in range(4)}
    assert (intake.records, intake.size) == (0, 0)


def test_a_table_is_settled_when_the_next_is_asked_for():
    """Rows have no ledger: up to its end a table counts as dealt with when its handler comes back for more."""
    intake = Intake()
    intake.put([make_record(3), make_record(4), make_record(9, partition=1)])
    table = intake.fetch_table(100, 0)
    assert table.num_rows == 3
    assert intake.settled == {}
    assert intake.fetch_table(100, 0) is None
    assert intake.settled == {("orders", 0): 5, ("orders", 1): 10}


def test_rows_of_partitions_that_are_gone_do_not_become_a_table():
    """They are sifted out before the handler sees them."""
    intake = Intake()
    intake.sift = lambda records: [record for record in records if record.partition]
    intake.put([make_record(3), make_record(9, partition=1)])
    assert intake.fetch_table(100, 0).num_rows == 1
    intake.settle()
    assert intake.settled == {("orders", 1): 10}
