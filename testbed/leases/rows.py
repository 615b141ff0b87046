"""Leases as rows of the database, and numbers that never decrease."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from testbed.leases.listing import lease_of
from testbed.leases.model import LIVING, Lease
from testbed.storage.schema import counters, lease_parts, leases, part_checks, reservations


def living(connection: sa.Connection, lab: str) -> dict[str, Lease]:
    """Return the leases of a lab that have not ended, by id, in the order of their arrival."""
    query = leases.select().where(leases.c.lab == lab, leases.c.state.in_(sorted(LIVING)))
    found = [lease_of({**row}) for row in connection.execute(query.order_by(leases.c.arrival)).mappings()]
    return {lease.id: lease for lease in found}


def insert(connection: sa.Connection, lease: Lease) -> None:
    """Add a lease that nobody has seen yet."""
    connection.execute(leases.insert().values(_row(lease)))
    if lease.starts_s is not None:
        values = {"lease": lease.id, "lab": lease.lab, "starts_s": lease.starts_s, "ends_s": lease.expires_s}
        connection.execute(reservations.insert(), [values | {"part": part} for part in sorted(lease.parts)])


def update(connection: sa.Connection, before: Lease, after: Lease) -> None:
    """Write what became of a lease, and which parts are held: the key of their table lets nothing be held twice."""
    if after.is_held and not before.is_held and after.parts:
        held = [{"lab": after.lab, "part": part, "lease": after.id} for part in sorted(after.parts)]
        connection.execute(lease_parts.insert(), held)
    if after.state not in LIVING:
        connection.execute(lease_parts.delete().where(lease_parts.c.lease == after.id))
        connection.execute(reservations.delete().where(reservations.c.lease == after.id))
    connection.execute(leases.update().where(leases.c.id == after.id).values(_row(after)))


def _row(lease: Lease) -> dict[str, Any]:
    values = {field.name: getattr(lease, field.name) for field in fields(Lease)}
    return values | {
        "resources": list(lease.resources),
        "parts": sorted(lease.parts),
        "allowed": list(lease.allowed),
    }


def counter(connection: sa.Connection, name: str) -> int:
    """Return a counter; 0 before it was first used."""
    return int(connection.execute(sa.select(counters.c.value).where(counters.c.name == name)).scalar() or 0)


def set_counter(connection: sa.Connection, name: str, value: int) -> int:
    """Write a counter and return it."""
    connection.execute(counters.delete().where(counters.c.name == name))
    connection.execute(counters.insert().values(name=name, value=value))
    return value


def following(connection: sa.Connection, name: str) -> int:
    """Return the next number of a counter, which nobody gets again."""
    return set_counter(connection, name, counter(connection, name) + 1)


def faults(connection: sa.Connection, lab: str) -> dict[str, str]:
    """Return the parts that failed their last check, with what was found."""
    query = part_checks.select().where(part_checks.c.lab == lab, part_checks.c.fault != "")
    return {row["part"]: row["fault"] for row in connection.execute(query).mappings()}


def write_checks(connection: sa.Connection, lab: str, checks: Mapping[str, str], now_s: float) -> None:
    """Write the last check of parts; an empty fault is one that passed."""
    wanted: Iterable[str] = checks
    connection.execute(
        part_checks.delete().where(part_checks.c.lab == lab, part_checks.c.part.in_(list(wanted)))
    )
    rows = [{"lab": lab, "part": part, "checked_s": now_s, "fault": fault} for part, fault in checks.items()]
    if rows:
        connection.execute(part_checks.insert(), rows)
