"""`testbed lease ...` and `testbed maintenance`: who may change which part of a lab, and when nobody may."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, TextConverter, argument, option
from testbed.commands.documents import Document, UnfinishedOperation
from testbed.commands.groups import INTERVAL_CONVERTER, parse_interval
from testbed.errors import UsageError

if TYPE_CHECKING:
    from testbed.leases import model
    from testbed.leases.store import LeaseStore

POLL_S = 0.5
DURATION_CONVERTER = TextConverter(str, str, INTERVAL_CONVERTER.pattern)
"""An interval that is kept as text, so that the help shows the default as written. `run` parses the text."""
_LEASE_ID_ARGUMENT = argument("Lease id, as shown by `testbed lease list`.", "ID")


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A lease: its owner, resources, state and expiry, and what it waits for. Times are seconds since 1970."""

    id: str
    token: int | None
    owner: str
    state: str
    priority: int
    reason: str
    resources: tuple[str, ...]
    expires: float
    starts: float | None
    allowed: tuple[str, ...]
    implicit: bool
    waits_for: str

    def format_line(self) -> str:
        """Return a line for people: `20261123T1 granted token 4: host:a, ann@lab1, until 2026-11-23 10:20:00 UTC`."""
        expiry = datetime.fromtimestamp(self.expires, UTC)
        token_text = f" token {self.token}" if self.token else ""
        shown_resources = self.resources if len(self.resources) < 6 else (*self.resources[:5], "...")
        reason = self.waits_for or self.reason
        description = (
            f"{self.id} {self.state}{token_text}: {', '.join(shown_resources)}, {self.owner}, until "
            f"{expiry:%Y-%m-%d %H:%M:%S} UTC"
        )
        return f"{description}; {reason}" if reason else description


@dataclass(frozen=True, kw_only=True)
class LeaseDocument(Document):
    """One lease of a lab, as a list."""

    lab: str
    leases: tuple[Lease, ...]
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class MaintenanceReason:
    """The person who put a lab under maintenance, the reason, and the time."""

    owner: str
    reason: str
    since_s: float


@dataclass(frozen=True, kw_only=True)
class LeaseListDocument(Document):
    """The leases of a lab. `maintenance` is None unless the lab is under maintenance."""

    lab: str
    leases: tuple[Lease, ...]
    maintenance: MaintenanceReason | None
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class LeaseRequest(Command[LeaseDocument]):
    """`testbed lease request`."""

    lane = "waiting"
    resources: Annotated[
        tuple[str, ...],
        argument(
            "Parts: host:a, nic:a/nic1, port:ocs1/5, board:kit1; default: the whole lab.", "[RESOURCE]..."
        ),
    ] = ()
    ttl: Annotated[
        str,
        option(
            "Time until it expires unless extended: 90s, 10m, 2h.", metavar="TIME", text=DURATION_CONVERTER
        ),
    ] = "1h"
    priority: Annotated[
        int, option("Requests with a larger priority are served first.", least=-1000, most=1000)
    ] = 0
    at: Annotated[
        str,
        option("Reserve from this time on: 2026-11-24T09:00, in UTC unless it names a zone.", metavar="TIME"),
    ] = ""
    wait: Annotated[float, option("Wait this long for the grant.", metavar="SECONDS", least=0, most=3600)] = (
        0.0
    )
    allow: Annotated[
        tuple[str, ...], option("Another person who may use the lease (repeatable).", metavar="USER")
    ] = ()
    reason: Annotated[str, option("Reason, which is stored.", metavar="TEXT", is_one_line=True)] = ""

    def validate(self) -> None:
        """Raise `UsageError` for an invalid `--ttl` or `--at`."""
        super().validate()
        parse_interval(self.ttl)
        self.starts_s  # noqa: B018  raises for an invalid time

    @property
    def starts_s(self) -> float | None:
        """Start of a reservation in seconds since 1970, or None for now. Raises `UsageError`."""
        if not self.at:
            return None
        try:
            moment = datetime.fromisoformat(self.at)
        except ValueError as error:
            raise UsageError(f"--at {self.at!r} is not a time (example: 2026-11-24T09:00)") from error
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def run(self, context: CommandContext) -> LeaseDocument:
        """Request the parts, and wait for the grant. Raises `LeaseImpossible` and `LeaseDenied`."""
        from testbed.leases.model import find_parts

        parts = find_parts(context.lab, self.resources)
        with _open_store(context) as store:
            lease = store.request(
                self.resources,
                parts,
                ttl_s=parse_interval(self.ttl),
                priority=self.priority,
                starts_s=self.starts_s,
                allowed_owners=self.allow,
                reason=self.reason,
            )
            lease = _wait_for_grant(store, lease, self.wait)
        return _say_lease(context, lease)


def _wait_for_grant(store: LeaseStore, lease: model.Lease, max_wait_s: float) -> model.Lease:
    """Poll a request until it is granted or `max_wait_s` has passed, and return its last state.

    Each poll extends the request. A reservation has a fixed time and is not extended.
    """
    deadline_s = time.monotonic() + max_wait_s
    while not lease.is_held and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
        lease = store.get(lease.id) if lease.starts_s else store.extend(lease.id)
    return lease


@dataclass(frozen=True, kw_only=True)
class LeaseList(Command[LeaseListDocument]):
    """`testbed lease list`."""

    lane = "reading"
    role = "viewer"
    ended: Annotated[bool, option("Show ended leases too.", "--ended")] = False

    def run(self, context: CommandContext) -> LeaseListDocument:
        """List the leases."""
        from testbed.leases.listing import read_maintenance
        from testbed.storage.address import get_database_address

        row = read_maintenance(get_database_address(context.runs_dir), context.lab.name)
        maintenance = MaintenanceReason(**row) if row else None
        leases = _read_leases(context, includes_ended=self.ended)
        if maintenance:
            context.say(f"under maintenance by {maintenance.owner}: {maintenance.reason}")
        context.say(*([lease.format_line() for lease in leases] or ["no leases"]))
        return LeaseListDocument(
            lab=context.lab.name,
            leases=leases,
            maintenance=maintenance,
            unfinished=context.say_unfinished_operations(),
        )


@dataclass(frozen=True, kw_only=True)
class LeaseExtend(Command[LeaseDocument]):
    """`testbed lease extend`."""

    lane = "prompt"
    lease: Annotated[str, _LEASE_ID_ARGUMENT] = REQUIRED
    ttl: Annotated[
        str | None,
        option("New duration; default: that of the request.", metavar="TIME", text=DURATION_CONVERTER),
    ] = None

    def validate(self) -> None:
        """Raise `UsageError` for an invalid `--ttl`."""
        super().validate()
        if self.ttl:
            parse_interval(self.ttl)

    def run(self, context: CommandContext) -> LeaseDocument:
        """Extend the lease."""
        with _open_store(context) as store:
            lease = store.extend(self.lease, parse_interval(self.ttl) if self.ttl else None)
        return _say_lease(context, lease)


@dataclass(frozen=True, kw_only=True)
class LeaseRelease(Command[LeaseDocument]):
    """`testbed lease release`."""

    lane = "prompt"
    lease: Annotated[str, _LEASE_ID_ARGUMENT] = REQUIRED

    def run(self, context: CommandContext) -> LeaseDocument:
        """Release the lease."""
        with _open_store(context) as store:
            lease = store.release(self.lease)
        return _say_lease(context, lease)


@dataclass(frozen=True, kw_only=True)
class LeaseBreak(Command[LeaseDocument]):
    """`testbed lease break`."""

    lane = "prompt"
    role = "admin"
    lease: Annotated[str, _LEASE_ID_ARGUMENT] = REQUIRED
    reason: Annotated[str, option("Reason, which is stored.", metavar="TEXT", is_one_line=True, least=1)] = (
        REQUIRED
    )

    def run(self, context: CommandContext) -> LeaseDocument:
        """End anyone's lease."""
        with _open_store(context) as store:
            lease = store.break_lease(self.lease, self.reason)
        return _say_lease(context, lease)


@dataclass(frozen=True, kw_only=True)
class MaintenanceDocument(Document):
    """The lab, and whether it is under maintenance now."""

    lab: str
    maintenance: bool
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class Maintenance(Command[MaintenanceDocument]):
    """`testbed maintenance`."""

    lane = "waiting"
    role = "developer"
    is_lab_last = True
    to: Annotated[Literal["on", "off"], argument("Stop all motion, or allow it again.", "on|off")] = REQUIRED
    reason: Annotated[str, option("Reason, which is stored.", metavar="TEXT", is_one_line=True)] = (
        "hands in the rack"
    )
    wait: Annotated[
        float, option("Time limit for a move that is already running.", metavar="SECONDS", least=0, most=3600)
    ] = 120.0

    def run(self, context: CommandContext) -> MaintenanceDocument:
        """Stop all motion and wait until nothing moves, or allow it again."""
        from testbed.leases.store import wait_until_no_sender

        lab = context.lab.name
        with _open_store(context) as store:
            if self.to == "off":
                was_set = store.clear_maintenance()
                line = f"lab '{lab}' {'may be changed again' if was_set else 'was not under maintenance'}"
            else:
                store.set_maintenance(self.reason)
                wait_until_no_sender(store, self.wait)
                line = f"lab '{lab}' is under maintenance: nothing moves until `testbed maintenance off`"
        context.say(line)
        return MaintenanceDocument(
            lab=lab, maintenance=self.to == "on", unfinished=context.say_unfinished_operations()
        )


@contextmanager
def _open_store(context: CommandContext) -> Iterator[LeaseStore]:
    from testbed.leases.fence import convert_database_errors
    from testbed.leases.store import LeaseStore
    from testbed.storage.address import get_database_address
    from testbed.storage.database import Database

    database = Database(get_database_address(context.runs_dir))
    try:
        with convert_database_errors(database):
            yield LeaseStore(database, context.lab.name)
    finally:
        database.close()


def _read_leases(context: CommandContext, *, includes_ended: bool) -> tuple[Lease, ...]:
    from testbed.leases.listing import describe_leases
    from testbed.storage.address import get_database_address

    rows = describe_leases(
        get_database_address(context.runs_dir), context.lab.name, time.time(), includes_ended=includes_ended
    )
    return tuple(_make_lease(row) for row in rows)


def _make_lease(row: dict[str, Any]) -> Lease:
    return Lease(**row | {"resources": tuple(row["resources"]), "allowed": tuple(row["allowed"])})


def _say_lease(context: CommandContext, lease: model.Lease) -> LeaseDocument:
    """Print the current state of a lease, and return its document."""
    leases = tuple(row for row in _read_leases(context, includes_ended=True) if row.id == lease.id)
    context.say(*(row.format_line() for row in leases))
    return LeaseDocument(lab=lease.lab, leases=leases, unfinished=context.say_unfinished_operations())
