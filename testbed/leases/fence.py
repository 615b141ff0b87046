"""The fence before devices: it refuses every write under a lease that has ended, also from a suspended process.

    with hold_fence(database, lab.name, parts) as fence:  # the lease of --lease, or an implicit one
        with fence.guard_sending():                       # holds a lock that the end of the lease needs
            ... write to the device ...

While a process is suspended inside `guard_sending`, its lease cannot end and its parts cannot be granted again. A
process that is suspended elsewhere may find that its lease has ended, and then the fence refuses its writes. The
operation itself sends the heartbeat before each write, so the lease lasts only while its steps continue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from testbed.errors import ClockError, JournalError, LeaseDenied, LeaseStale, StorageError, UnderMaintenance
from testbed.leases import locks
from testbed.leases.choice import get_selected_lease
from testbed.leases.model import Lease
from testbed.leases.store import LeaseStore
from testbed.log_context import about
from testbed.storage.database import DATABASE_ERRORS, Database
from testbed.storage.reading import find_hint, get_database_message
from testbed.storage.schema import leases, maintenance

_current_fence: ContextVar[Fence | None] = ContextVar("fence", default=None)
BEATS_PER_TTL = 3
"""Heartbeats per duration of a lease; few, to save transactions, but more than one, because one may be late."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A lease under which an operation changes devices. Threads may share the fence."""

    database: Database
    lease: Lease
    held_parts: frozenset[str]
    extend_if_due: Callable[[], object] = lambda: None
    """Heartbeat of the lease, called before each write."""

    @property
    def token(self) -> int:
        """The fencing token of the grant, larger than all earlier ones."""
        return self.lease.token or 0

    @contextmanager
    def guard_sending(self) -> Iterator[None]:
        """Extend the lease if that is due, check it, and prevent its end while the block sends.

        Raises `LeaseStale`, `UnderMaintenance` or `JournalError` before the block, which then does not run.
        """
        with ExitStack() as stack:
            with convert_database_errors(self.database):
                self.extend_if_due()
                self._hold_lock(stack)
            yield

    def _hold_lock(self, stack: ExitStack) -> None:
        # Lock, then check: a lease that ended before the lock was taken fails the check.
        address = self.database.address
        if isinstance(address, Path):
            stack.enter_context(locks.share_lock_in_file(address, self.token))
            with self.database.open_reading() as connection:
                self._check_lease(connection)
        else:
            connection = stack.enter_context(self.database.open_reading())
            locks.share_lock_on_server(connection, self.token)
            self._check_lease(connection)

    def _check_lease(self, connection: sa.Connection) -> None:
        query = sa.select(leases.c.state, leases.c.token, leases.c.reason).where(leases.c.id == self.lease.id)
        row = connection.execute(query).first()
        if row is None or row.state not in ("granted", "draining") or row.token != self.token:
            lease_state = row.state if row else "gone"
            if row and row.state in ("expired", "broken"):
                lease_state += f": {row.reason}"
            raise LeaseStale(
                f"lease {self.lease.id} (token {self.token}) is {lease_state}; nothing was sent. Check the lab "
                "with `testbed plan`, then request a new lease"
            )
        _check_maintenance(connection, self.lease.lab)


def _check_maintenance(connection: sa.Connection, lab: str) -> None:
    row = connection.execute(maintenance.select().where(maintenance.c.lab == lab)).first()
    if row is not None:
        raise UnderMaintenance(
            f"lab '{lab}' is under maintenance by {row.owner} ({row.reason}); nothing was sent. "
            "Wait for `testbed maintenance off`"
        )


@contextmanager
def hold_fence(
    database: Database,
    lab: str,
    held_parts: frozenset[str],
    *,
    requested_lease_id: str | None = None,
    make_store: Callable[[Database, str], LeaseStore] | None = None,
) -> Iterator[Fence]:
    """Hold parts of a lab for an operation, under a lease.

    `requested_lease_id` is by default the lease of `--lease`, or an implicit lease.

    An empty `requested_lease_id` selects an implicit lease. Inside another `hold_fence` that covers the parts, yield
    its fence. Raises `UnderMaintenance`, `LeaseDenied` and its subclasses, and `JournalError` if the database cannot
    be written.
    """
    current_fence = _current_fence.get()
    if (
        current_fence is not None
        and current_fence.database is database
        and current_fence.lease.lab == lab
        and held_parts <= current_fence.held_parts
    ):
        yield current_fence
        return
    lease_store, lease_id = (
        (make_store or LeaseStore)(database, lab),
        get_selected_lease() if requested_lease_id is None else requested_lease_id,
    )
    with convert_database_errors(database):
        with database.open_reading() as connection:  # checked before anything is recorded
            _check_maintenance(connection, lab)
        granted_lease = (
            lease_store.begin_operation(lease_id, held_parts)
            if lease_id
            else lease_store.request_implicit(held_parts)
        )
    fence = Fence(
        database, granted_lease, granted_lease.parts, Heartbeat(lease_store, granted_lease).extend_if_due
    )
    context_token = _current_fence.set(fence)
    try:
        with about(lease=granted_lease.id):
            yield fence
    finally:
        _current_fence.reset(context_token)
        # If this fails, the use of the lease ends with this process, or when the lease expires.
        with suppress(JournalError, ClockError), convert_database_errors(database):
            lease_store.end_operation(granted_lease.id)


@contextmanager
def convert_database_errors(database: Database) -> Iterator[None]:
    """Convert errors of the database into `JournalError`. Without a record, nothing may be sent."""
    try:
        yield
    except StorageError as error:
        raise JournalError(str(error)) from error
    except (*DATABASE_ERRORS, OSError) as error:
        problem = f"the journal {database.name} cannot be written ({get_database_message(error)})"
        raise JournalError(f"{problem}; {find_hint(error)}") from error


class Heartbeat:
    """Heartbeat of one lease. Threads may share it; `monotonic` returns the seconds of a monotonic clock."""

    def __init__(
        self, store: LeaseStore, lease: Lease, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._lease = lease
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._last_beat_s = monotonic()

    def extend_if_due(self) -> None:
        """Extend the lease if a third of its duration has passed since the last heartbeat.

        Ignore a lease that cannot be extended, because the fence checks it before each write. Raises the errors of the
        database.
        """
        with self._lock:
            now_s = self._monotonic()
            if now_s - self._last_beat_s < self._lease.ttl_s / BEATS_PER_TTL:
                return
            self._last_beat_s = now_s
        with suppress(LeaseDenied, ClockError):
            self._store.extend(self._lease.id)
