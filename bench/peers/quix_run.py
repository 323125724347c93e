"""Quix Streams: a streaming data frame with one step, which is the handler."""

from __future__ import annotations

import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

from job import Job, from_arguments
from notes import Notes, writer
from quixstreams import Application, message_context

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK = 0.1


def main() -> None:
    job = from_arguments()
    with tempfile.TemporaryDirectory(prefix="laneway-peers-") as folder:
        app = Application(
            broker_address=job.brokers,
            consumer_group=job.group,
            auto_offset_reset="earliest",
            state_dir=folder,
            loglevel="WARNING",
        )
        # Bytes as they are: the other peers do not decode either.
        topic = app.topic(job.topic, key_deserializer="bytes", value_deserializer="bytes")
        app.dataframe(topic).update(handler(job))
        threading.Thread(target=stop_when_complete, args=(app, Notes(job.notes)), daemon=True).start()
        app.run()


def handler(job: Job) -> Callable[[Any], None]:
    note, wait = writer(job.notes), job.wait

    def handle(_value: Any) -> None:
        start = time.monotonic()
        if wait:
            time.sleep(wait)
        context = message_context()
        note(context.partition, context.offset, start)

    return handle


def stop_when_complete(app: Application, notes: Notes) -> None:
    while not notes.is_complete:
        time.sleep(LOOK)
    app.stop()


if __name__ == "__main__":
    main()
