"""Leases of one lab in the database. Each change is a transaction that first applies all ends and grants that are due.

A lease can end only while nobody sends to a device under it (see `locks`); then its parts can be granted again.
"""

from __future__ import annotations

import getpass
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from testbed.errors import LeaseDenied, LeaseHeld
from testbed.leases import locks, rows, rules
from testbed.leases.model import LIVING_STATES, Lease, State
from testbed.storage.address import Address
from testbed.storage.database import Database
from testbed.storage.owner import get_current_process, get_requester, is_running
from testbed.storage.schema import leases as leases_table
from testbed.storage.schema import maintenance

POLL_S = 0.2
DEFAULT_TTL_S = 3600.0
IMPLICIT_TTL_S = 60.0
MIN_TTL_S = 1.0


@dataclass
class LeaseTransaction:
    """One transaction on the leases of a lab that have not ended; `lock_stack` releases locks after the commit."""

    connection: sa.Connection
    address: Address
    now_s: float
    leases: dict[str, Lease]
    fault_by_part: Mapping[str, str]
    lock_stack: ExitStack
    _is_locked_by_token: dict[int, bool] = field(default_factory=dict)

    def store_lease(self, lease: Lease) -> Lease:
        """Store the new state of a lease and return it."""
        rows.update_lease(self.connection, self.leases[lease.id], lease)
        if lease.state in LIVING_STATES:
            self.leases[lease.id] = lease
        else:
            del self.leases[lease.id]
        return lease

    def find_lease(self, lease_id: str) -> Lease:
        """Return a lease that has not ended. Raises `LeaseDenied`."""
        if lease_id in self.leases:
            return self.leases[lease_id]
        row = (
            self.connection.execute(leases_table.select().where(leases_table.c.id == lease_id))
            .mappings()
            .first()
        )
        if row is None:
            raise LeaseDenied(f"there is no lease {lease_id}; list them with `testbed lease list`")
        reason = f" ({row['reason']})" if row["reason"] else ""
        raise LeaseDenied(f"lease {lease_id} is {row['state']}{reason}; request a new one")

    def try_lock(self, lease: Lease) -> bool:
        """Take the lock of a lease until after the commit; return False if somebody is sending under it."""
        token = lease.token
        if token is None:
            return True
        if token not in self._is_locked_by_token:
            if isinstance(self.address, Path):
                self._is_locked_by_token[token] = self.lock_stack.enter_context(
                    locks.try_lock_in_file(self.address, token)
                )
            else:
                self._is_locked_by_token[token] = locks.try_lock_on_server(self.connection, token)
        return self._is_locked_by_token[token]


def get_default_owner() -> str:
    """Return the requesting person, or else `user@machine` of this process."""
    return get_requester() or f"{getpass.getuser()}@{os.uname().nodename}"


class LeaseStore:
    """The leases of one lab. `now` returns seconds since 1970; `is_alive` returns whether a process runs.

    Methods raise `LeaseDenied` and its subclasses, `ClockError`, and the errors of the database.
    """

    def __init__(
        self,
        database: Database,
        lab: str,
        *,
        owner: str = "",
        now: Callable[[], float] = time.time,
        is_alive: Callable[[str], bool] = is_running,
    ) -> None:
        self.database = database
        self.lab = lab
        self.owner = owner or get_default_owner()
        self._now = now
        self._is_alive = is_alive

    def request(
        self,
        resources: Collection[str],
        parts: frozenset[str],
        *,
        ttl_s: float = DEFAULT_TTL_S,
        priority: int = 0,
        starts_s: float | None = None,
        allowed_owners: Collection[str] = (),
        reason: str = "",
    ) -> Lease:
        """Request parts, all or nothing. Return the lease: granted if nothing stops it, or else queued.

        With `starts_s` the parts are reserved from that time. Raises `LeaseDenied` for a reservation that overlaps
        another or starts in the past, and for a duration below `MIN_TTL_S`.
        """
        _check_ttl(ttl_s)
        with self._open_change() as transaction:
            lease = self._make_lease(
                transaction,
                resources,
                parts,
                ttl_s,
                priority=priority,
                allowed=tuple(allowed_owners),
                reason=reason,
            )
            if starts_s is not None:
                if starts_s < transaction.now_s:
                    raise LeaseDenied("a reservation cannot begin in the past; leave out --at to start now")
                lease = replace(lease, state="requested", starts_s=starts_s, expires_s=starts_s + ttl_s)
                rules.check_reservation(lease, transaction.leases.values())
            self._insert_lease(transaction, lease)
            return transaction.leases[lease.id]

    def request_implicit(self, parts: frozenset[str]) -> Lease:
        """Request parts for one operation of this process. Raises `LeaseDenied` unless granted at once."""
        with self._open_change() as transaction:
            lease = self._make_lease(
                transaction, (), parts, IMPLICIT_TTL_S, is_implicit=True, operation=get_current_process()
            )
            self._insert_lease(transaction, lease)
            lease = transaction.leases[lease.id]
            if lease.state != "granted":
                explanation = rules.explain_wait(
                    lease, transaction.leases.values(), transaction.fault_by_part, transaction.now_s
                )
                raise LeaseDenied(
                    f"{explanation}; nothing was sent. Pass --lease if it is yours, or queue for it: testbed "
                    "lease request"
                )
            return lease

    def get(self, lease_id: str) -> Lease:
        """Return a lease that has not ended. Raises `LeaseDenied`."""
        with self._open_change() as transaction:
            return transaction.find_lease(lease_id)

    def extend(self, lease_id: str, ttl_s: float | None = None) -> Lease:
        """Extend a lease to `ttl_s` from now, by default to its own duration. This is also its heartbeat."""
        _check_ttl(ttl_s)
        with self._open_change() as transaction:
            lease = self._check_owner(transaction.find_lease(lease_id))
            return transaction.store_lease(
                rules.make_extended_lease(
                    lease, transaction.leases.values(), transaction.now_s, ttl_s or lease.ttl_s
                )
            )

    def begin_operation(self, lease_id: str, parts: frozenset[str]) -> Lease:
        """Store that this process uses parts under a lease from now on, and extend the lease."""
        with self._open_change() as transaction:
            lease = self._check_owner(transaction.find_lease(lease_id))
            if lease.state != "granted":
                raise LeaseDenied(f"lease {lease_id} is {lease.state}, so it permits no changes")
            if not parts <= lease.parts:
                missing = ", ".join(sorted(parts - lease.parts)[:3])
                raise LeaseDenied(f"lease {lease_id} does not cover {missing}; request one that does")
            if (
                lease.operation
                and lease.operation != get_current_process()
                and self._is_alive(lease.operation)
            ):
                raise LeaseDenied(
                    f"another process is using lease {lease_id} (process {lease.operation.split()[0]})"
                )
            lease = rules.make_extended_lease(
                lease, transaction.leases.values(), transaction.now_s, lease.ttl_s
            )
            return transaction.store_lease(replace(lease, operation=get_current_process()))

    def end_operation(self, lease_id: str) -> None:
        """Store that the operation under a lease has ended; an implicit lease is released."""
        with self._open_change() as transaction:
            lease = transaction.leases.get(lease_id)
            if lease is not None:
                lease = transaction.store_lease(replace(lease, operation=None))
                if lease.is_implicit and transaction.try_lock(lease):
                    self._end_lease(transaction, lease, "released")
                elif lease.is_implicit and lease.state == "granted":  # a thread of the operation still sends
                    transaction.store_lease(lease.change_state("draining"))

    def release(self, lease_id: str) -> Lease:
        """Release a lease, or withdraw a request. Raises `LeaseHeld` while an operation uses it."""
        with self._open_change() as transaction:
            lease = self._check_owner(transaction.find_lease(lease_id))
            if self._is_in_flight(lease):
                raise LeaseHeld(
                    f"an operation is using lease {lease_id} ({describe_process(lease)}); wait for it"
                )
            return self._end_or_refuse(transaction, lease, "released")

    def break_lease(self, lease_id: str, reason: str) -> Lease:
        """End the lease of another owner. Raises `LeaseHeld` while somebody sends under it."""
        with self._open_change() as transaction:
            lease = transaction.find_lease(lease_id)
            return self._end_or_refuse(transaction, lease, "broken", reason=f"{reason} (by {self.owner})")

    def set_maintenance(self, reason: str) -> None:
        """Start maintenance: no new write is sent from now on. `wait_until_no_sender` waits for writes in progress."""
        with self._open_change() as transaction:
            row = (
                transaction.connection.execute(maintenance.select().where(maintenance.c.lab == self.lab))
                .mappings()
                .first()
            )
            if row is None:
                transaction.connection.execute(
                    maintenance.insert().values(
                        lab=self.lab, owner=self.owner, reason=reason, since_s=transaction.now_s
                    )
                )

    def clear_maintenance(self) -> bool:
        """End maintenance; return whether the lab was under maintenance."""
        with self._open_change() as transaction:
            result = transaction.connection.execute(maintenance.delete().where(maintenance.c.lab == self.lab))
            return bool(result.rowcount)

    def find_sending_leases(self) -> tuple[Lease, ...]:
        """Return the leases under which somebody is sending to a device now."""
        with self._open_change() as transaction:
            return tuple(
                lease
                for lease in transaction.leases.values()
                if lease.is_held and not transaction.try_lock(lease)
            )

    def write_checks(self, fault_by_part: Mapping[str, str]) -> None:
        """Store the last check of parts, with the fault of each. Faulty parts are not granted until they pass."""
        with self._open_change() as transaction:
            rows.write_checks(transaction.connection, self.lab, fault_by_part, transaction.now_s)

    def _make_lease(
        self,
        transaction: LeaseTransaction,
        resources: Collection[str],
        parts: frozenset[str],
        ttl_s: float,
        **fields: object,
    ) -> Lease:
        return Lease(
            id=f"{datetime.fromtimestamp(transaction.now_s, UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}",
            lab=self.lab,
            owner=self.owner,
            process=get_current_process(),
            state="queued",
            arrival=rows.increment_counter(transaction.connection, "arrival"),
            resources=tuple(resources),
            parts=parts,
            ttl_s=ttl_s,
            requested_s=transaction.now_s,
            expires_s=transaction.now_s + ttl_s,
            **({"priority": 0} | fields),  # type: ignore[arg-type]
        )

    def _insert_lease(self, transaction: LeaseTransaction, lease: Lease) -> None:
        rows.insert_lease(transaction.connection, lease)
        transaction.leases[lease.id] = lease
        self._apply_due_changes(transaction)

    @contextmanager
    def _open_change(self) -> Iterator[LeaseTransaction]:
        """Open a transaction, and apply due changes before and after the block. Locks outlast the transaction."""
        with ExitStack() as lock_stack, self.database.open_transaction() as connection:
            newest_s = rows.read_counter(connection, "newest_ms") / 1000
            now_s = rules.check_monotonic(self._now(), newest_s)
            if now_s > newest_s:
                rows.set_counter(connection, "newest_ms", int(now_s * 1000))
            living_leases, fault_by_part = (
                rows.read_living_leases(connection, self.lab),
                rows.read_faults(connection, self.lab),
            )
            transaction = LeaseTransaction(
                connection, self.database.address, now_s, living_leases, fault_by_part, lock_stack
            )
            self._apply_due_changes(transaction)
            yield transaction
            self._apply_due_changes(transaction)

    def _apply_due_changes(self, transaction: LeaseTransaction) -> None:
        """Queue reservations whose start has come, end leases that are due, then grant requests."""
        for lease in [
            candidate
            for candidate in transaction.leases.values()
            if rules.is_start_due(candidate, transaction.now_s)
        ]:
            transaction.store_lease(lease.change_state("queued"))
        for lease in list(transaction.leases.values()):
            is_orphaned = lease.is_implicit and not self._is_alive(lease.process)
            if not (
                rules.is_expiry_due(lease, transaction.now_s) or lease.state == "draining" or is_orphaned
            ):
                continue
            # While somebody sends under the lease, its parts must not be granted again.
            if self._is_in_flight(lease) or not transaction.try_lock(lease):
                if lease.state == "granted":
                    transaction.store_lease(lease.change_state("draining"))
            else:
                self._end_lease(
                    transaction,
                    lease,
                    "expired",
                    reason="its process ended" if is_orphaned else "its time is over",
                )
        for lease in rules.select_grants(
            transaction.leases.values(), transaction.fault_by_part, transaction.now_s
        ):
            token = rows.increment_counter(transaction.connection, "token")
            transaction.store_lease(rules.make_granted_lease(lease, token, transaction.now_s))

    def _is_in_flight(self, lease: Lease) -> bool:
        return lease.operation is not None and self._is_alive(lease.operation)

    def _end_or_refuse(
        self, transaction: LeaseTransaction, lease: Lease, state: State, *, reason: str = ""
    ) -> Lease:
        if not transaction.try_lock(lease):
            raise LeaseHeld(
                f"{describe_process(lease)} is sending to a device under lease {lease.id}, and may be suspended: "
                "what it will still send is unknown. Let it continue, or end that process (kill -9), then "
                "run this again"
            )
        return self._end_lease(transaction, lease, state, reason=reason)

    def _end_lease(
        self, transaction: LeaseTransaction, lease: Lease, state: State, *, reason: str = ""
    ) -> Lease:
        return transaction.store_lease(
            lease.change_state(
                state, ended_s=transaction.now_s, operation=None, reason=lease.describe_end(reason)
            )
        )

    def _check_owner(self, lease: Lease) -> Lease:
        if not lease.may_be_used_by(self.owner):
            raise LeaseDenied(f"lease {lease.id} belongs to {lease.owner}, and {self.owner} may not use it")
        return lease


def describe_process(lease: Lease) -> str:
    """Return text for people that names the process that uses a lease, or else the process that requested it."""
    process_words = (lease.operation or lease.process).split(" ")
    return f"process {process_words[0]}" + (f" on {process_words[2]}" if len(process_words) > 2 else "")


def _check_ttl(ttl_s: float | None) -> None:
    if ttl_s is not None and ttl_s < MIN_TTL_S:
        raise LeaseDenied(f"a lease lasts at least {MIN_TTL_S:g} s, but {ttl_s:g} s were requested")


def wait_until_no_sender(
    store: LeaseStore, max_wait_s: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Wait until nobody sends to a device of the lab. Raises `LeaseHeld` after `max_wait_s`."""
    deadline_s = time.monotonic() + max_wait_s
    while sending_leases := store.find_sending_leases():
        if time.monotonic() >= deadline_s:
            descriptions = ", ".join(
                f"{describe_process(lease)} under lease {lease.id}" for lease in sending_leases
            )
            raise LeaseHeld(
                f"lab '{store.lab}' is still changing: {descriptions} is sending, and no new change can start. "
                "Do not touch "
                "the devices until this command succeeds: repeat it, or end that process first"
            )
        sleep(POLL_S)
