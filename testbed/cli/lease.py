"""`testbed lease ...` and `testbed maintenance`: who may move which part of a lab, and when nothing may move."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from testbed.cli import options
from testbed.cli.output import print_answer
from testbed.cli.unfinished import with_unfinished
from testbed.commands.documents import DONE

if TYPE_CHECKING:
    from testbed.leases.model import Lease
    from testbed.leases.store import LeaseStore

POLL_S = 0.5
LeaseId = Annotated[str, typer.Argument(metavar="ID", help="Lease, as `testbed lease list` names it.")]
Ttl = Annotated[
    str, typer.Option("--ttl", metavar="TIME", help="How long it lasts without a heartbeat: 90s, 10m, 2h.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept.")]

Resources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RESOURCE]...", help="host:a, nic:a/nic1, port:ocs1/5, board:kit1; all of the lab if none."
    ),
]
At = Annotated[
    str,
    typer.Option(
        "--at", metavar="TIME", help="Reserve from then on: 2026-11-24T09:00, in UTC unless it says more."
    ),
]
Wait = Annotated[float, typer.Option("--wait", metavar="SECONDS", min=0, help="Wait so long for the grant.")]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="USER", help="Another person who may use it (repeatable)."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Leases of parts of a lab.", no_args_is_help=True)
    group.command("request")(request)
    group.command("list")(list_leases)
    group.command("extend")(extend)
    group.command("release")(release)
    group.command("break")(break_lease)
    app.add_typer(group, name="lease")
    app.command("maintenance")(set_maintenance)


def request(
    lab_file: options.LabFile,
    resources: Resources = None,
    ttl: Ttl = "1h",
    priority: Annotated[int, typer.Option("--priority", help="Larger ones are served first.")] = 0,
    at: At = "",
    wait: Wait = 0.0,
    allow: Allow = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept.")] = "",
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Ask for parts of a lab, all or nothing. Exit code 0 when granted or queued, 1 when refused."""
    from testbed.lab.inventory import load_lab
    from testbed.leases.model import parts_of

    wanted = tuple(resources or ())
    parts, starts_s = parts_of(load_lab(lab_file), wanted), _moment(at) if at else None
    with _store(lab_file, runs_dir) as store:
        lease = store.request(
            wanted,
            parts,
            ttl_s=_seconds(ttl),
            priority=priority,
            starts_s=starts_s,
            allowed=allow or (),
            reason=reason,
        )
        lease = _granted(store, lease, wait)
    return _print_lease(lease, lab_file, runs_dir, as_json=as_json)


def _granted(store: LeaseStore, lease: Lease, at_most_s: float) -> Lease:
    """Return a request when it is granted, or as it is when the time is over; each look is its heartbeat."""
    deadline = time.monotonic() + at_most_s
    while not lease.is_held and time.monotonic() < deadline:
        time.sleep(POLL_S)
        lease = store.get(lease.id) if lease.starts_s else store.extend(lease.id)
    return lease


def list_leases(
    lab_file: options.LabFile,
    ended: Annotated[bool, typer.Option("--ended", help="Also those that are over.")] = False,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """List the leases of a lab, and what those that wait are waiting for. Writes nothing."""
    from testbed.lab.inventory import load_lab
    from testbed.leases.listing import describe_leases, read_maintenance
    from testbed.storage.address import address_in

    address, lab = address_in(runs_dir), load_lab(lab_file)
    stopped = read_maintenance(address, lab.name)
    leases = describe_leases(address, lab.name, time.time(), ended=ended)
    lines = [f"under maintenance by {stopped['owner']}: {stopped['reason']}"] if stopped else []
    lines += [_line(one) for one in leases] or ["no leases"]
    document = {"lab": lab.name, "leases": leases, "maintenance": stopped}
    print_answer(*with_unfinished(document, lines, runs_dir, lab), as_json=as_json)
    return DONE


def extend(
    lab_file: options.LabFile,
    lease: LeaseId,
    ttl: Annotated[str, typer.Option("--ttl", metavar="TIME", help="As of the request, if not given.")] = "",
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Let a lease last longer, from now on; this is its heartbeat, too."""
    with _store(lab_file, runs_dir) as store:
        found = store.extend(lease, _seconds(ttl) if ttl else None)
    return _print_lease(found, lab_file, runs_dir, as_json=as_json)


def release(
    lab_file: options.LabFile,
    lease: LeaseId,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Give a lease back, or withdraw a request."""
    with _store(lab_file, runs_dir) as store:
        found = store.release(lease)
    return _print_lease(found, lab_file, runs_dir, as_json=as_json)


def break_lease(
    lab_file: options.LabFile,
    lease: LeaseId,
    reason: Reason,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Take a lease from whoever holds it; refused while something is being sent to a device under it."""
    with _store(lab_file, runs_dir) as store:
        found = store.break_(lease, reason)
    return _print_lease(found, lab_file, runs_dir, as_json=as_json)


def set_maintenance(
    to: Annotated[
        Literal["on", "off"], typer.Argument(metavar="on|off", help="Stop all motion, or allow it again.")
    ],
    lab_file: options.LabFile,
    reason: Reason = "hands in the rack",
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", min=0, help="Time in which a move under way must end."),
    ] = 120.0,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Stop all motion of a lab while hands are in the rack. On exit code 0 nothing moves any more."""
    from testbed.lab.inventory import load_lab
    from testbed.leases.stillness import wait_until_still

    with _store(lab_file, runs_dir) as store:
        if to == "off":
            was = store.clear_maintenance()
            lines = [
                f"lab '{store.lab}' may move again" if was else f"lab '{store.lab}' was not under maintenance"
            ]
        else:
            store.set_maintenance(reason)
            wait_until_still(store, wait)
            lines = [f"lab '{store.lab}' is under maintenance: nothing moves until `testbed maintenance off`"]
    document = {"lab": store.lab, "maintenance": to == "on"}
    print_answer(*with_unfinished(document, lines, runs_dir, load_lab(lab_file)), as_json=as_json)
    return DONE


@contextmanager
def _store(lab_file: Path, runs_dir: Path) -> Iterator[LeaseStore]:
    from testbed.lab.inventory import load_lab
    from testbed.leases.fence import database_errors
    from testbed.leases.store import LeaseStore
    from testbed.storage.address import address_in
    from testbed.storage.database import Database

    database = Database(address_in(runs_dir))
    try:
        with database_errors(database):
            yield LeaseStore(database, load_lab(lab_file).name)
    finally:
        database.close()


def _print_lease(lease: Lease, lab_file: Path, runs_dir: Path, *, as_json: bool) -> int:
    from testbed.lab.inventory import load_lab
    from testbed.leases.listing import describe_leases
    from testbed.storage.address import address_in

    every = describe_leases(address_in(runs_dir), lease.lab, time.time(), ended=True)
    (found,) = [one for one in every if one["id"] == lease.id]
    told = with_unfinished(
        {"lab": lease.lab, "leases": [found]}, [_line(found)], runs_dir, load_lab(lab_file)
    )
    print_answer(*told, as_json=as_json)
    return DONE


def _line(lease: dict[str, Any]) -> str:
    """Return one line for people: `20261123T1 granted token 4, host:a, of ann@lab1 until 10:20 UTC; reason`."""
    until = datetime.fromtimestamp(lease["expires"], UTC)
    token = f" token {lease['token']}" if lease["token"] else ""
    names = lease["resources"] if len(lease["resources"]) < 6 else [*lease["resources"][:5], "..."]
    why = lease["waits_for"] or lease["reason"]
    what = f"{lease['id']} {lease['state']}{token}: {', '.join(names)}"
    text = f"{what}, {lease['owner']}, until {until:%Y-%m-%d %H:%M:%S} UTC"
    return f"{text}; {why}" if why else text


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(text: str) -> float:
    """Return `90s`, `10m`, `2h` or `1d` in seconds."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text)
    if not found or not float(found[1]):
        raise typer.BadParameter(f"{text!r} is not a time; write for example 90s, 10m, 2h or 1d")
    return float(found[1]) * _UNITS[found[2]]


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"--at {text!r} is not a time; write for example 2026-11-24T09:00"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
