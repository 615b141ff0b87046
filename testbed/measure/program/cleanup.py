"""Cleanup process: it restores hosts and releases the lease if `testbed run` is killed before it does so itself.

`python -m testbed.measure.program.cleanup` runs in its own session. Its input names the lease and the earlier state of
the hosts. If the input ends without the word `done`, the process restores the hosts and releases the lease.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.leases.store import LeaseStore
    from testbed.storage.database import Database


@dataclass
class PendingCleanup:
    """Lease that is not yet released, and earlier state of hosts that are not yet restored, under `restore_lease`."""

    lease: str = ""
    restore_lease: str = ""
    state: dict[str, Any] | None = None
    hosts: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, lines: IO[str]) -> PendingCleanup | None:
        """Read the pending cleanup from the lines. Return None if the lines end with `done`: nothing is pending."""
        pending = cls()
        for line in lines:
            if line == "done\n":
                return None
            if line.endswith("\n"):  # the last line may be incomplete
                for name, value in json.loads(line).items():
                    setattr(pending, name, value)
        return pending


def main(arguments: Sequence[str]) -> int:
    """Wait for the end of the input, clean up what it names, and return 0."""
    pending = PendingCleanup.read(sys.stdin)
    if pending is None:
        return 0
    from testbed.storage.address import choose_database

    runs_dir, lab_file, run_id, reason, owner = arguments
    choose_database(os.environ.get("LIGHTBED_DATABASE", ""))
    os.chdir("/")
    _clean_up(pending, Path(runs_dir), Path(lab_file), run_id, reason, owner)
    return 0


def _clean_up(
    pending: PendingCleanup, runs_dir: Path, lab_file: Path, run_id: str, reason: str, owner: str
) -> None:
    from testbed.lab.inventory import load_lab
    from testbed.lab.simulated.lifecycle import find_running_lab
    from testbed.leases.store import LeaseStore
    from testbed.measure.results.store import RunStore
    from testbed.storage.address import get_database_address
    from testbed.storage.database import Database
    from testbed.storage.owner import is_running

    lab = find_running_lab(load_lab(lab_file))
    database = Database(get_database_address(runs_dir))
    problem = ""
    try:
        store = LeaseStore(database, lab.name)
        if pending.state is not None:
            problem = _restore_hosts(pending, lab, runs_dir, reason, owner, store)
        if lease := pending.lease or _find_lease(database, lab, reason, owner):
            from testbed.errors import LeaseDenied

            with suppress(LeaseDenied):
                store.release(lease)
    finally:
        database.close()
        if not is_running(owner):  # a process that was only interrupted has recorded the interruption itself
            error = f"testbed run was killed (process {owner.split(maxsplit=1)[0]})"
            RunStore(runs_dir).close_killed_run(run_id, f"{error}; {problem}" if problem else error)


def _restore_hosts(
    pending: PendingCleanup, lab: Lab, runs_dir: Path, reason: str, owner: str, store: LeaseStore
) -> str:
    """Restore the hosts. Return why this failed, or "" if it succeeded."""
    from testbed.lab.model import make_shard
    from testbed.leases.heartbeat import keep_alive
    from testbed.measure.program.light import LEASE_TTL_S, mark_hosts_not_restored, restore_hosts
    from testbed.operate.borrow import LabState

    assert pending.state is not None
    leased_lab = make_shard(lab, pending.hosts) if len(pending.hosts) < len(lab.hosts) else lab
    state = LabState.from_json(pending.state, runs_dir, lab.name)
    try:
        with keep_alive(lambda: store.extend(pending.restore_lease), LEASE_TTL_S / 4):
            store.extend(pending.restore_lease)
            restore_hosts(state, leased_lab, runs_dir, pending.restore_lease, owner, reason)
    except Exception as error:  # noqa: BLE001 - the lease is released, whatever the error
        return mark_hosts_not_restored(leased_lab, runs_dir, reason, error)
    return ""


def _find_lease(database: Database, lab: Lab, reason: str, owner: str) -> str:
    """Return the lease that the process requested just before it was killed, or ""."""
    from testbed.leases.listing import read_leases

    leases = read_leases(database.address, lab.name)
    return next((lease.id for lease in leases if (lease.process, lease.reason) == (owner, reason)), "")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
