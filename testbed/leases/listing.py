"""Reading leases of a lab, without writes and without waiting for a lock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from testbed.leases import rules
from testbed.leases.model import LIVING_STATES, Lease
from testbed.storage.address import Address
from testbed.storage.owner import is_running
from testbed.storage.reading import read_rows_checked

_LIST_FIELDS = ("resources", "parts", "allowed")


def parse_lease(row: Mapping[str, Any]) -> Lease:
    """Return the lease in a row of the database; lists may be JSON text, as in SQLite."""
    values = {field.name: row[field.name] for field in fields(Lease)}
    for name in _LIST_FIELDS:
        values[name] = tuple(json.loads(row[name]) if isinstance(row[name], str) else row[name])
    return Lease(**values | {"parts": frozenset(values["parts"]), "is_implicit": bool(row["is_implicit"])})


def read_leases(address: Address, lab: str, *, includes_ended: bool = False) -> tuple[Lease, ...]:
    """Return the leases of a lab in the order of their arrival; with `includes_ended` also those that have ended."""
    rows = read_rows_checked(address, "select * from leases where lab = ? order by arrival", (lab,))
    return tuple(lease for lease in map(parse_lease, rows) if includes_ended or lease.state in LIVING_STATES)


def describe_leases(
    address: Address, lab: str, now_s: float, *, includes_ended: bool = False
) -> list[dict[str, Any]]:
    """Return the leases of a lab for JSON documents, with the reason why each pending request waits.

    A lease whose time is over is shown as expired, although the database stores that only at the next change.
    """
    leases = tuple(
        _predict_state(now_s, lease) for lease in read_leases(address, lab, includes_ended=includes_ended)
    )
    query = "select part, fault from part_checks where lab = ? and fault != ''"
    fault_by_part = {row["part"]: row["fault"] for row in read_rows_checked(address, query, (lab,))}
    living_leases = [lease for lease in leases if lease.state in LIVING_STATES]
    return [
        make_lease_json(lease)
        | {
            "waits_for": rules.explain_wait(lease, living_leases, fault_by_part, now_s)
            if lease.state in LIVING_STATES and not lease.is_held
            else ""
        }
        for lease in leases
    ]


def _predict_state(now_s: float, lease: Lease) -> Lease:
    """Return a lease as the next change will store it: draining if an operation still uses it, else expired."""
    if lease.state not in LIVING_STATES - {"draining"} or not rules.is_expiry_due(lease, now_s):
        return lease
    if lease.operation is not None and is_running(lease.operation):
        return replace(lease, state="draining")
    return replace(lease, state="expired", reason=lease.describe_end("its time is over"))


def make_lease_json(lease: Lease) -> dict[str, Any]:
    """Return a lease for JSON documents; times are seconds since 1970."""
    field_names = ("id", "token", "owner", "state", "priority", "reason")
    return {name: getattr(lease, name) for name in field_names} | {
        "resources": list(lease.resources) or (sorted(lease.parts) if lease.is_implicit else ["lab"]),
        "expires": lease.expires_s,
        "starts": lease.starts_s,
        "allowed": list(lease.allowed),
        "implicit": lease.is_implicit,
    }


def read_maintenance(address: Address, lab: str) -> dict[str, Any] | None:
    """Return owner, reason and start of the maintenance of a lab; None if it is not under maintenance."""
    rows = read_rows_checked(address, "select owner, reason, since_s from maintenance where lab = ?", (lab,))
    return dict(rows[0]) if rows else None
