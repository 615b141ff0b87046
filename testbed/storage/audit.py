"""The append-only audit log: each line has the hash of the line before it.

A changed line no longer matches its hash. A removed line leaves a gap in the numbers; if it was the last line, the
stored count is higher than the number of lines. But anybody who can write the database can compute all hashes again. To
detect this, store the newest hash, which `testbed audit --verify` prints, elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import sqlalchemy as sa

from testbed.storage.address import Address
from testbed.storage.reading import read_rows
from testbed.storage.schema import audit, counters

FIRST_HASH = "0" * 64
"""The hash before the first line."""
_LINE_COUNTER = "audit"
_FIELDS = ("number", "at", "who", "role", "action", "lab", "why", "plan", "outcome", "previous")


class Actor(Protocol):
    """A person or program that acts: its name and its role."""

    @property
    def name(self) -> str:
        """The name for the log."""

    @property
    def role(self) -> str:
        """The role in which it acts."""


@dataclass(frozen=True, slots=True)
class LocalUser:
    """A user of this machine, and the role in which the user acts."""

    name: str
    role: str


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A line to write: who does what to which lab, why, with which plan, and the outcome."""

    actor: Actor
    action: str
    lab: str = ""
    reason: str = ""
    plan: str = ""
    outcome: str = "accepted"


def append_entry(connection: sa.Connection, entry: AuditEntry) -> int:
    """Add a line in a transaction that holds the write lock, and return its number."""
    last_row = (
        connection.execute(sa.select(audit).order_by(audit.c.number.desc()).limit(1)).mappings().first()
    )
    stored_count = connection.execute(
        sa.select(counters.c.value).where(counters.c.name == _LINE_COUNTER)
    ).scalar()
    row: dict[str, Any] = {
        "number": max(stored_count or 0, last_row["number"] if last_row else 0) + 1,
        "at": datetime.now(UTC).isoformat(timespec="microseconds"),
        "who": entry.actor.name,
        "role": entry.actor.role,
        "action": entry.action,
        "lab": entry.lab,
        "why": entry.reason,
        "plan": entry.plan,
        "outcome": entry.outcome,
        "previous": last_row["hash"] if last_row else FIRST_HASH,
    }
    connection.execute(audit.insert().values(row | {"hash": compute_hash(row)}))
    if stored_count is None:
        connection.execute(counters.insert().values(name=_LINE_COUNTER, value=row["number"]))
    else:
        connection.execute(
            counters.update().where(counters.c.name == _LINE_COUNTER).values(value=row["number"])
        )
    return int(row["number"])


def compute_hash(row: Mapping[str, Any]) -> str:
    """Return the hash of a line: SHA-256 of its fields as JSON, including the hash of the line before it."""
    text = json.dumps([row[name] for name in _FIELDS], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_audit(address: Address, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the lines, oldest first. With `limit`, return only that number of the newest lines."""
    rows = [dict(row) for row in read_rows(address, "select * from audit order by number")]
    return rows[-limit:] if limit else rows


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Result of a check: the number of intact lines, the newest hash, and the first broken line with the reason."""

    line_count: int
    newest_hash: str
    broken_line: int | None = None
    reason: str = ""


def verify_audit_log(address: Address, expected_hash: str = "") -> AuditResult:
    """Check the whole log; with `expected_hash` also that it has a line with this hash."""
    count_rows = read_rows(address, "select value from counters where name = ?", (_LINE_COUNTER,))
    rows = read_audit(address)
    result = check_chain(rows, int(count_rows[0]["value"]) if count_rows else 0)
    if expected_hash and result.broken_line is None and expected_hash not in {row["hash"] for row in rows}:
        reason = f"no line has the hash {expected_hash}: the end of the log was cut, or it is another log"
        return AuditResult(result.line_count, result.newest_hash, result.line_count + 1, reason)
    return result


def check_chain(rows: Iterable[Mapping[str, Any]], expected_count: int) -> AuditResult:
    """Check the numbers, links and hashes of the lines, and that there are `expected_count` lines."""
    previous_hash, number = FIRST_HASH, 0
    for row in rows:
        number += 1
        reason = ""
        if row["number"] != number:
            reason = "the line was removed"
        elif row["previous"] != previous_hash:
            reason = "it does not follow the line before it"
        elif row["hash"] != compute_hash(row):
            reason = "the line was changed"
        if reason:
            return AuditResult(number - 1, previous_hash, number, reason)
        previous_hash = row["hash"]
    if number < expected_count:
        return AuditResult(
            number,
            previous_hash,
            number + 1,
            f"the last {expected_count - number} of {expected_count} lines were removed",
        )
    return AuditResult(number, previous_hash)
