"""Leases and their checks as rows of the database, and counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from testbed.leases.listing import parse_lease
from testbed.leases.model import LIVING_STATES, Lease
from testbed.storage.schema import counters, lease_parts, leases, part_checks, reservations


def read_living_leases(connection: sa.Connection, lab: str) -> dict[str, Lease]:
    """Return the leases of a lab that have not ended, by id, in the order of their arrival."""
    query = leases.select().where(leases.c.lab == lab, leases.c.state.in_(sorted(LIVING_STATES)))
    rows = connection.execute(query.order_by(leases.c.arrival)).mappings()
    return {lease.id: lease for lease in (parse_lease({**row}) for row in rows)}


def insert_lease(connection: sa.Connection, lease: Lease) -> None:
    """Insert a new lease. For a reservation, also insert the time of each part."""
    connection.execute(leases.insert().values(_make_row(lease)))
    if lease.starts_s is not None:
        values = {"lease": lease.id, "lab": lease.lab, "starts_s": lease.starts_s, "ends_s": lease.expires_s}
        connection.execute(reservations.insert(), [values | {"part": part} for part in sorted(lease.parts)])


def update_lease(connection: sa.Connection, previous_lease: Lease, updated_lease: Lease) -> None:
    """Store the new state of a lease and the parts that it holds. The key of `lease_parts` prevents a double grant."""
    if updated_lease.is_held and not previous_lease.is_held and updated_lease.parts:
        part_rows = [
            {"lab": updated_lease.lab, "part": part, "lease": updated_lease.id}
            for part in sorted(updated_lease.parts)
        ]
        connection.execute(lease_parts.insert(), part_rows)
    if updated_lease.state not in LIVING_STATES:
        connection.execute(lease_parts.delete().where(lease_parts.c.lease == updated_lease.id))
        connection.execute(reservations.delete().where(reservations.c.lease == updated_lease.id))
    connection.execute(
        leases.update().where(leases.c.id == updated_lease.id).values(_make_row(updated_lease))
    )


def _make_row(lease: Lease) -> dict[str, Any]:
    values = {field.name: getattr(lease, field.name) for field in fields(Lease)}
    return values | {
        "resources": list(lease.resources),
        "parts": sorted(lease.parts),
        "allowed": list(lease.allowed),
    }


def read_counter(connection: sa.Connection, name: str) -> int:
    """Return the value of a counter; 0 before its first use."""
    return int(connection.execute(sa.select(counters.c.value).where(counters.c.name == name)).scalar() or 0)


def set_counter(connection: sa.Connection, name: str, value: int) -> int:
    """Set the value of a counter and return it."""
    connection.execute(counters.delete().where(counters.c.name == name))
    connection.execute(counters.insert().values(name=name, value=value))
    return value


def increment_counter(connection: sa.Connection, name: str) -> int:
    """Increment a counter and return the new value, which is unique."""
    return set_counter(connection, name, read_counter(connection, name) + 1)


def read_faults(connection: sa.Connection, lab: str) -> dict[str, str]:
    """Return the parts that failed their last check, with the fault of each."""
    query = part_checks.select().where(part_checks.c.lab == lab, part_checks.c.fault != "")
    return {row["part"]: row["fault"] for row in connection.execute(query).mappings()}


def write_checks(connection: sa.Connection, lab: str, fault_by_part: Mapping[str, str], now_s: float) -> None:
    """Store the last check of parts, replacing earlier ones; an empty fault means that the part passed."""
    parts: Iterable[str] = fault_by_part
    connection.execute(
        part_checks.delete().where(part_checks.c.lab == lab, part_checks.c.part.in_(list(parts)))
    )
    rows = [
        {"lab": lab, "part": part, "checked_s": now_s, "fault": fault}
        for part, fault in fault_by_part.items()
    ]
    if rows:
        connection.execute(part_checks.insert(), rows)
