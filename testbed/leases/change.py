"""One transaction over the leases of a lab."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from testbed.errors import LeaseDenied
from testbed.leases import locks, rows
from testbed.leases.model import LIVING, Lease
from testbed.storage.address import Address
from testbed.storage.schema import leases as leases_table


@dataclass
class Change:
    """One transaction over the leases of a lab: those that live, as they were and as they become."""

    connection: sa.Connection
    address: Address
    now_s: float
    leases: dict[str, Lease]
    faults: Mapping[str, str]
    held: ExitStack
    _locked: dict[int, bool] = field(default_factory=dict)

    def put(self, lease: Lease) -> Lease:
        """Write what became of a lease."""
        rows.update(self.connection, self.leases[lease.id], lease)
        if lease.state in LIVING:
            self.leases[lease.id] = lease
        else:
            del self.leases[lease.id]
        return lease

    def find(self, lease_id: str) -> Lease:
        """Return a lease that lives. Raises `LeaseDenied`."""
        if lease_id in self.leases:
            return self.leases[lease_id]
        row = (
            self.connection.execute(leases_table.select().where(leases_table.c.id == lease_id))
            .mappings()
            .first()
        )
        if row is None:
            raise LeaseDenied(f"there is no lease {lease_id}; list them with `testbed lease list`")
        why = f" ({row['reason']})" if row["reason"] else ""
        raise LeaseDenied(f"lease {lease_id} is {row['state']}{why}; request a new one")

    def lock(self, lease: Lease) -> bool:
        """Take the lock of a lease until after the commit; return False while something is sent under it."""
        token = lease.token
        if token is None:
            return True
        if token not in self._locked:
            if isinstance(self.address, Path):
                self._locked[token] = self.held.enter_context(locks.alone_in_file(self.address, token))
            else:
                self._locked[token] = locks.take_on_server(self.connection, token)
        return self._locked[token]
