"""Events of a lab's journal as they are sent: in the order of commits, each with its number in the journal.

One reader follows the database for all streams; a stream is a number up to which it has sent, so that one that is slow
holds up nobody and loses nothing: what the reader no longer keeps is read from the database again.
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
"""Newest events that are kept in memory."""
POLL_S = 0.02
PING_S = 15.0
PING = b": ping\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: of a step (`operation`, `device`, `ordinal`) or of a run; `text` is what is sent of it."""

    number: int
    kind: str
    lab: str
    run: str
    text: bytes


@dataclass(frozen=True, slots=True)
class Filter:
    """Choice of events; what is empty chooses all. `sees` is whether somebody may see a lab at all."""

    labs: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    sees: Callable[[str], bool] = lambda _lab: True

    def takes(self, event: Event) -> bool:
        """Return whether an event is chosen."""
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
        """Return the number of the newest event, 0 where there is none."""
        with self._database.reading() as connection:
            return int(connection.execute(sa.select(sa.func.max(step_events.c.number))).scalar() or 0)

    def after(self, number: int, limit: int = PAGE) -> list[Event]:
        """Return the events after a number, oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(_AFTER, {"number": number, "limit": limit})
            return [event_of(dict(row)) for row in rows.mappings()]

    def snapshot(self, chosen: Filter) -> tuple[int, bytes]:
        """Return the newest number and, of the same moment, the runs that have not ended as an event."""
        with self._database.reading() as connection:
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
    told = {"number": row["number"], "kind": kind, "lab": row["of_lab"], "run": row["of_run"]}
    told |= {"event": row["event"], "at": row["at"]}
    if kind == "step":
        told |= {"operation": row["operation"], "device": row["switch"], "ordinal": row["ordinal"]}
    else:
        told["data"] = json.loads(row["data"] or "{}")
    return Event(row["number"], kind, row["of_lab"], row["of_run"], encode_event(row["number"], kind, told))


def encode_event(number: int, kind: str, document: Mapping[str, Any]) -> bytes:
    r"""Return an event as it is sent.

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
        """Begin at the newest event."""
        self._read_to = await asyncio.to_thread(self._log.newest)

    async def run(self) -> None:
        """Follow the database; one that cannot be read is tried again."""
        while True:
            try:
                found = await asyncio.to_thread(self._log.after, self._read_to)
                self.failed = ""
            except Exception as error:  # noqa: BLE001 - /readyz says so
                found, self.failed = [], str(error)
            if found:
                self._kept.extend(found)
                self._read_to = found[-1].number
                self._news.set()
                self._news = asyncio.Event()
            if len(found) < PAGE:
                await asyncio.sleep(POLL_S)

    async def stream(self, chosen: Filter, after: int | None) -> AsyncIterator[bytes]:
        """Yield what is sent to one client: a snapshot unless it names the last event that it has, then events.

        A number that no event has yet was given by another database, and tells nothing.
        """
        if after is None or after > max(self._read_to, await asyncio.to_thread(self._log.newest)):
            number, text = await asyncio.to_thread(self._log.snapshot, chosen)
            yield text
        else:
            number = after
        yield PING  # whoever waits knows that the stream has begun
        while True:
            news = self._news
            found = await self._following(number)
            if found:
                number = found[-1].number
                texts = [event.text for event in found if chosen.takes(event)]
                if texts:
                    yield b"".join(texts)
                continue
            try:
                await asyncio.wait_for(news.wait(), PING_S)
            except TimeoutError:
                yield PING

    async def _following(self, number: int) -> Sequence[Event]:
        """Return events after a number, from memory where all of them are there."""
        if number >= self._read_to:
            return ()
        if self._kept and self._kept[0].number <= number + 1:
            newest_first = takewhile(lambda event: event.number > number, reversed(self._kept))
            return list(newest_first)[::-1]
        return await asyncio.to_thread(self._log.after, number)
