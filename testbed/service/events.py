"""Streams of the journal as server-sent events, in the order of commits. Each has its number in the journal.

One reader polls the database for all streams. A stream stores only the number of the last event that it has sent, so a
slow client neither delays others nor loses events: events that are no longer in memory are read again.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import sqlalchemy as sa

from testbed.service.runs import ENDED_STATES
from testbed.storage.database import Database
from testbed.storage.schema import operations, step_events, submitted_runs

EVENT_KINDS = ("run", "step")
PAGE_EVENT_COUNT = 2_000
MAX_EVENTS_IN_MEMORY = 20_000
"""Number of newest events in memory."""
POLL_S = 0.02
PING_S = 15.0
PING_COMMENT = b": ping\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a step or of a run. `text` is its encoded form."""

    number: int
    kind: str
    lab: str
    run: str
    text: bytes


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Selection of events. An empty set selects all. `may_see` returns whether the client may see a lab."""

    labs: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    may_see: Callable[[str], bool] = lambda _lab: True

    def selects(self, event: Event) -> bool:
        """Return whether the filter selects an event."""
        return (
            (not self.labs or event.lab in self.labs)
            and (not self.runs or event.run in self.runs)
            and (not self.kinds or event.kind in self.kinds)
            and self.may_see(event.lab)
        )


class EventLog:
    """Events in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find_newest_number(self) -> int:
        """Return the number of the newest event, or 0 without events."""
        with self._database.open_reading() as connection:
            return int(connection.execute(sa.select(sa.func.max(step_events.c.number))).scalar() or 0)

    def read_after(self, number: int, limit: int = PAGE_EVENT_COUNT) -> list[Event]:
        """Return up to `limit` events after a number, oldest first."""
        with self._database.open_reading() as connection:
            rows = connection.execute(_EVENTS_AFTER_QUERY, {"number": number, "limit": limit})
            return [make_event(dict(row)) for row in rows.mappings()]

    def read_snapshot(self, selection: EventFilter) -> tuple[int, bytes]:
        """Return the newest number, and an encoded event that lists the unfinished runs at that moment."""
        with self._database.open_reading() as connection:
            number = int(connection.execute(sa.select(sa.func.max(step_events.c.number))).scalar() or 0)
            rows = connection.execute(_UNFINISHED_RUNS_QUERY).mappings().all()
        keys = ("id", "lab", "command", "who", "why", "state", "attempts", "submitted", "started")
        runs = [
            {key: row[key] for key in keys}
            for row in rows
            if (not selection.labs or row["lab"] in selection.labs)
            and (not selection.runs or row["id"] in selection.runs)
            and selection.may_see(row["lab"])
        ]
        return number, encode_event(number, "snapshot", {"number": number, "runs": runs})


_EVENTS_AFTER_QUERY = (
    sa.select(
        step_events,
        sa.func.coalesce(sa.func.nullif(step_events.c.lab, ""), operations.c.lab, "").label("of_lab"),
        sa.func.coalesce(sa.func.nullif(step_events.c.run, ""), operations.c.run, "").label("of_run"),
    )
    .select_from(step_events.outerjoin(operations, operations.c.id == step_events.c.operation))
    .where(step_events.c.number > sa.bindparam("number"))
    .order_by(step_events.c.number)
    .limit(sa.bindparam("limit"))
)
_UNFINISHED_RUNS_QUERY = (
    sa.select(submitted_runs)
    .where(submitted_runs.c.state.not_in(ENDED_STATES))
    .order_by(submitted_runs.c.submitted)
)


def make_event(row: Mapping[str, Any]) -> Event:
    """Return the event that a row of the database describes."""
    kind = "step" if row["operation"] else "run"
    document = {"number": row["number"], "kind": kind, "lab": row["of_lab"], "run": row["of_run"]}
    document |= {"event": row["event"], "at": row["at"]}
    if kind == "step":
        document |= {"operation": row["operation"], "device": row["switch"], "ordinal": row["ordinal"]}
    else:
        document["data"] = json.loads(row["data"] or "{}")
    text = encode_event(row["number"], kind, document)
    return Event(row["number"], kind, row["of_lab"], row["of_run"], text)


def encode_event(number: int, kind: str, document: Mapping[str, Any]) -> bytes:
    r"""Return an event in the format of server-sent events.

    >>> encode_event(7, "run", {"number": 7})
    b'id: 7\nevent: run\ndata: {"number": 7}\n\n'
    """
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(document)}\n\n".encode()


class Feed:
    """The reader of events for all streams of a service. `error` holds the error of the last reading, or ""."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._newest_events: deque[Event] = deque(maxlen=MAX_EVENTS_IN_MEMORY)
        self._last_number = 0
        self._has_new_events = asyncio.Event()
        self.error = ""

    async def skip_stored_events(self) -> None:
        """Start after the newest event of the database."""
        self._last_number = await asyncio.to_thread(self._log.find_newest_number)

    async def run(self) -> None:
        """Poll the database for events until cancelled. After an error, set `error` and read again."""
        while True:
            try:
                events = await asyncio.to_thread(self._log.read_after, self._last_number)
                self.error = ""
            except Exception as error:  # noqa: BLE001 - /readyz reports every error
                events, self.error = [], str(error)
            if events:
                self._newest_events.extend(events)
                self._last_number = events[-1].number
                self._has_new_events.set()
                self._has_new_events = asyncio.Event()
            if len(events) < PAGE_EVENT_COUNT:
                await asyncio.sleep(POLL_S)

    async def stream(self, selection: EventFilter, last_number: int | None) -> AsyncIterator[bytes]:
        """Yield the bytes for a client: a snapshot and then events, or the events after number `last_number` if given.

        A number beyond the newest event must come from another database, and is treated as None.
        """
        if last_number is None or last_number > max(
            self._last_number, await asyncio.to_thread(self._log.find_newest_number)
        ):
            number, text = await asyncio.to_thread(self._log.read_snapshot, selection)
            yield text
        else:
            number = last_number
        yield PING_COMMENT  # tells the client that the stream has begun, even without events
        while True:
            has_new_events = self._has_new_events
            events = await self._read_events_after(number)
            if events:
                number = events[-1].number
                texts = [event.text for event in events if selection.selects(event)]
                if texts:
                    yield b"".join(texts)
                continue
            try:
                await asyncio.wait_for(has_new_events.wait(), PING_S)
            except TimeoutError:
                yield PING_COMMENT

    async def _read_events_after(self, number: int) -> Sequence[Event]:
        """Return the events after a number, from memory if all of them are there, else from the database."""
        if number >= self._last_number:
            return ()
        if self._newest_events and self._newest_events[0].number <= number + 1:
            later_events = takewhile(lambda event: event.number > number, reversed(self._newest_events))
            return list(later_events)[::-1]
        return await asyncio.to_thread(self._log.read_after, number)
