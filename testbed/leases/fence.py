"""The fence before devices: nothing is sent under a lease that ended, however late the sender wakes up.

    with fenced(database, lab.name, parts) as fence:      # the lease of --lease, or an implicit one
        with fence.sending():                             # check and send share the lock that ending a lease needs
            ... write to the device ...

A process that is stopped inside `sending` makes every end of its lease wait, and so every grant of its parts; one that
is stopped anywhere else wakes up to a refusal. The lease of an operation lasts as long as its steps go on, and no
longer: its heartbeat is beaten before each write, by the operation and not by a clock of its own.
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
from testbed.leases.choice import find_chosen
from testbed.leases.model import Lease
from testbed.leases.store import LeaseStore
from testbed.log_context import about
from testbed.storage.database import DATABASE_ERRORS, Database
from testbed.storage.looking import hint_for, reason_of
from testbed.storage.schema import leases, maintenance

_current: ContextVar[Fence | None] = ContextVar("fence", default=None)
BEATS = 3
"""Beats in the time that a lease lasts: fewer transactions than steps, and one may come late."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A lease while an operation moves something under it. Threads may share it."""

    database: Database
    lease: Lease
    parts: frozenset[str]
    beat: Callable[[], object] = lambda: None
    """Heartbeat of the lease, called before each write."""

    @property
    def token(self) -> int:
        """The fencing token: larger than those of all earlier grants."""
        return self.lease.token or 0

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Extend the lease if it is time to, check it, and provide the time to send; it cannot end meanwhile.

        Raises `LeaseStale` and `UnderMaintenance`; nothing may be sent then.
        """
        with ExitStack() as held:
            with database_errors(self.database):
                self.beat()
                self._hold(held)
            yield

    def _hold(self, held: ExitStack) -> None:
        address = self.database.address
        if isinstance(address, Path):
            held.enter_context(locks.share_in_file(address, self.token))
            with self.database.reading() as connection:
                self._check(connection)
        else:
            connection = held.enter_context(self.database.reading())
            locks.share_on_server(connection, self.token)
            self._check(connection)

    def _check(self, connection: sa.Connection) -> None:
        query = sa.select(leases.c.state, leases.c.token, leases.c.reason).where(leases.c.id == self.lease.id)
        found = connection.execute(query).first()
        if found is None or found.state not in ("granted", "draining") or found.token != self.token:
            became = found.state if found else "gone"
            if found and found.state in ("expired", "broken"):
                became += f": {found.reason}"
            raise LeaseStale(
                f"lease {self.lease.id} (token {self.token}) is {became}; nothing was sent. Check the lab "
                "with `testbed plan`, then request a new lease"
            )
        _check_maintenance(connection, self.lease.lab)


def _check_maintenance(connection: sa.Connection, lab: str) -> None:
    stopped = connection.execute(maintenance.select().where(maintenance.c.lab == lab)).first()
    if stopped is not None:
        raise UnderMaintenance(
            f"lab '{lab}' is under maintenance by {stopped.owner} ({stopped.reason}); nothing was sent. "
            "Wait for `testbed maintenance off`"
        )


@contextmanager
def hold_fence(
    database: Database,
    lab: str,
    parts: frozenset[str],
    *,
    lease: str | None = None,
    store: Callable[[Database, str], LeaseStore] | None = None,
) -> Iterator[Fence]:
    """Hold parts of a lab for the time of an operation: under a lease (by default of `--lease`), or an implicit one.

    Inside another `hold_fence` of the same parts, this is the same fence. Raises `UnderMaintenance`, `LeaseDenied` and
    its subclasses, and `JournalError` if the database cannot be written: nothing may move then.
    """
    outer = _current.get()
    if outer is not None and outer.database is database and outer.lease.lab == lab and parts <= outer.parts:
        yield outer
        return
    leases_of_lab, wanted = (store or LeaseStore)(database, lab), find_chosen() if lease is None else lease
    with database_errors(database):
        with database.reading() as connection:  # before anything is recorded
            _check_maintenance(connection, lab)
        held = leases_of_lab.begin(wanted, parts) if wanted else leases_of_lab.request_implicit(parts)
    fence = Fence(database, held, held.parts, Heartbeat(leases_of_lab, held).beat)
    mark = _current.set(fence)
    try:
        with about(lease=held.id):
            yield fence
    finally:
        _current.reset(mark)
        with (
            suppress(JournalError, ClockError),
            database_errors(database),
        ):  # it ends with this process, or by its time
            leases_of_lab.end(held.id)


@contextmanager
def database_errors(database: Database) -> Iterator[None]:
    """Raise `JournalError` for what a database raises: nothing may move then."""
    try:
        yield
    except StorageError as error:
        raise JournalError(str(error)) from error
    except (*DATABASE_ERRORS, OSError) as error:
        what = f"the journal {database.name} cannot be written ({reason_of(error)})"
        raise JournalError(f"{what}; {hint_for(error)}") from error


class Heartbeat:
    """Heartbeat of one lease. Threads may share it; `steady` is a clock that is never set."""

    def __init__(self, store: LeaseStore, lease: Lease, steady: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._lease = lease
        self._steady = steady
        self._lock = threading.Lock()
        self._last_s = steady()

    def beat(self) -> None:
        """Extend the lease where a third of its time has passed. Raises what the database raises.

        One that cannot be extended is left as it is: whether anything may be sent is for the fence to say.
        """
        with self._lock:
            now_s = self._steady()
            if now_s - self._last_s < self._lease.ttl_s / BEATS:
                return
            self._last_s = now_s
        with suppress(LeaseDenied, ClockError):
            self._store.extend(self._lease.id)
