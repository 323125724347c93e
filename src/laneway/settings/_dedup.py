"""Settings of the store of handled records."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from laneway.settings._types import DurationType, Hidden, Text, Word, duration, wrong

__all__ = ["DedupSettings", "IdSource"]


def _id_source(text: str) -> str:
    if text != "origin" and not re.fullmatch(r"(header|field):\S+", text):
        raise wrong("this is not where an id comes from", "write header:event-id, field:order.id or origin")
    return text


IdSource = Annotated[Text, AfterValidator(_id_source)]


class DedupSettings(BaseModel):
    """The store of handlers that are ``effectively_once``; None keeps what the code declares."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    store: Hidden | None = Field(
        default=None,
        description="The address of the store, as {env: NAME} when it has a password: redis://host:6379/0,"
        " postgresql://host/database, sqlite:ids.db, or memory: for one process.",
    )
    id: IdSource | None = Field(
        default=None,
        description="Where a record's id comes from: header:NAME, field:PATH of its JSON value, or origin, its topic,"
        " partition and offset. origin recognises a record that is read again, not a message that was written twice.",
    )
    ttl: Annotated[DurationType, duration("1s", "3650d")] | None = Field(
        default=None, description="How long an id is remembered. Longer costs space in the store. [default: 7d]"
    )
    lease: Annotated[DurationType, duration("1s", "1d")] | None = Field(
        default=None,
        description="How long records of a process that died wait. Must be longer than the process can be suspended."
        " [default: 30s]",
    )
    on_outage: Annotated[Literal["wait", "continue"], Word] | None = Field(
        default=None,
        description="What happens while the store does not answer: records wait, or they are handled without it, as"
        " with at_least_once. [default: wait]",
    )
