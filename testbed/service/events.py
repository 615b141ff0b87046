"""Streams of a lab's journal as server-sent events: in the order of commits, each with its number in the journal.

One reader polls the database for all streams. A stream holds only the number of the last event sent, so a slow client
neither delays others nor loses events: those no longer in memory are read from the database again.
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

from testbed.service.runs import ENDED
from testbed.storage.database import Database
from testbed.storage.schema import operations, step_events, submitted_runs

KINDS = ("run", "step")
PAGE = 2_000
KEPT = 20_000
"""Number of newest events held in memory."""
POLL_S = 0.02
PING_S = 15.0
PING = b": ping\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event, of a step or of a run; `text` is its encoded form."""

    number: int
    kind: str
    lab: str
    run: str
    text: bytes


@dataclass(frozen=True, slots=True)
class Filter:
    """Selection of events; an empty set selects all. `sees` returns whether the client may see a lab."""

    labs: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    sees: Callable[[str], bool] = lambda _lab: True

    def takes(self, event: Event) -> bool:
        """Return whether an event is selected."""
        return (
            (not self.labs or event.lab in self.labs)
            and (not self.runs or event.run in self.runs)
            and (not self.kinds or event.kind in self.kinds)
            and self.sees(event.lab)
        )


class EventLog:
    """Events in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self) -> int:
        """Return the number of the newest event, 0 if there is none."""
        with self._database.open_reading() as connection:
            return int(connection.execute(sa.select(sa.func.max(step_events.c.number))).scalar() or 0)

    def after(self, number: int, limit: int = PAGE) -> list[Event]:
        """Return the events after a number, oldest first."""
        with self._database.open_reading() as connection:
            rows = connection.execute(_AFTER, {"number": number, "limit": limit})
            return [event_of(dict(row)) for row in rows.mappings()]

    def snapshot(self, chosen: Filter) -> tuple[int, bytes]:
        """Return the newest number, and an encoded event with the runs that have not ended at that moment."""
        with self._database.open_reading() as connection:
            number = int(connection.execute(sa.select(sa.func.max(step_events.c.number))).scalar() or 0)
            rows = connection.execute(_LIVING).mappings().all()
        names = ("id", "lab", "command", "who", "why", "state", "attempts", "submitted", "started")
        runs = [
            {name: row[name] for name in names}
            for row in rows
            if (not chosen.labs or row["lab"] in chosen.labs)
            and (not chosen.runs or row["id"] in chosen.runs)
            and chosen.sees(row["lab"])
        ]
        return number, encode_event(number, "snapshot", {"number": number, "runs": runs})


_AFTER = (
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
_LIVING = (
    sa.select(submitted_runs).where(submitted_runs.c.state.not_in(ENDED)).order_by(submitted_runs.c.submitted)
)


def event_of(row: Mapping[str, Any]) -> Event:
    """Return the event of a row."""
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
    """The reader of events for all streams of one service. `run` follows the database until it is cancelled."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._read_to = 0
        self._news = asyncio.Event()
        self.failed = ""

    async def begin(self) -> None:
        """Start after the newest event of the database."""
        self._read_to = await asyncio.to_thread(self._log.newest)

    async def run(self) -> None:
        """Poll the database for events until cancelled; after an error, `failed` holds it and reading is repeated."""
        while True:
            try:
                events = await asyncio.to_thread(self._log.after, self._read_to)
                self.failed = ""
            except Exception as error:  # noqa: BLE001 - /readyz reports it
                events, self.failed = [], str(error)
            if events:
                self._kept.extend(events)
                self._read_to = events[-1].number
                self._news.set()
                self._news = asyncio.Event()
            if len(events) < PAGE:
                await asyncio.sleep(POLL_S)

    async def stream(self, chosen: Filter, after: int | None) -> AsyncIterator[bytes]:
        """Yield the bytes for one client: the events after number `after`, or first a snapshot if it is None.

        A number beyond the newest event comes from another database, and is treated as None.
        """
        if after is None or after > max(self._read_to, await asyncio.to_thread(self._log.newest)):
            number, text = await asyncio.to_thread(self._log.snapshot, chosen)
            yield text
        else:
            number = after
        yield PING  # tells the client that the stream has begun, even without events
        while True:
            news = self._news
            events = await self._events_after(number)
            if events:
                number = events[-1].number
                texts = [event.text for event in events if chosen.takes(event)]
                if texts:
                    yield b"".join(texts)
                continue
            try:
                await asyncio.wait_for(news.wait(), PING_S)
            except TimeoutError:
                yield PING

    async def _events_after(self, number: int) -> Sequence[Event]:
        """Return the events after a number, from memory if it holds all of them, else from the database."""
        if number >= self._read_to:
            return ()
        if self._kept and self._kept[0].number <= number + 1:
            newest_first = takewhile(lambda event: event.number > number, reversed(self._kept))
            return list(newest_first)[::-1]
        return await asyncio.to_thread(self._log.after, number)
