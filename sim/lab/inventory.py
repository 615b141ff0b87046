"""Labs on this machine: how to find them by their names in the kernel, end them and remove them.

There is no state file that could become stale: the namespaces of a lab, its link on the root side and its claim all
have names with its id. A lab whose claim is locked is live; any other is debris of a supervisor that was killed.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sim.lab.claims import Claim, find_claim_names, find_holder, find_user
from sim.lab.model import LabError
from sim.twins.hosts import netns

_LAB_ID_PATTERN = re.compile(r"^(lb[0-9a-f]{6})(?:-|$)")
_END_TIMEOUT_S = 10.0
_POLL_INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class LabNames:
    """Names of the kernel objects of a lab."""

    lab_id: str

    @property
    def management_namespace(self) -> str:
        """Namespace of the management bridge and of the twins' sockets."""
        return f"{self.lab_id}-mgmt"

    @property
    def fabric_namespace(self) -> str:
        """Namespace of the optical fabric."""
        return f"{self.lab_id}-fab"

    @property
    def root_link(self) -> str:
        """Interface of this machine in the management network."""
        return f"{self.lab_id}-0"

    def get_host_namespace(self, name: str) -> str:
        """Return the network namespace of a host."""
        return f"{self.lab_id}-{name}"


@dataclass(frozen=True, slots=True)
class LabEntry:
    """A lab on this machine; only `id` and `namespaces` are known if it is not live.

    `state` is `live` or `debris`, `namespaces` their number, `rate_mbps` the rate of the links, `user` the user who
    started the lab.
    """

    id: str
    lab: str
    state: str
    pid: int | None
    subnet: str
    namespaces: int
    simulated: bool = True
    rate_mbps: float = 0.0
    user: str = ""

    @property
    def belongs_to_other_user(self) -> bool:
        """True if this is a live lab of another user."""
        return self.state == "live" and self.user not in ("", find_user())

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `--status`."""
        return asdict(self)


def find_labs() -> tuple[LabEntry, ...]:
    """Return all labs of this machine, live and debris, sorted by id.

    Without root these are only the labs of this user, which have no namespaces.
    """
    kernel_names = (
        [*netns.list_namespaces("lb"), *[name for _, name in socket.if_nameindex()]]
        if os.geteuid() == 0
        else []
    )
    ids = {
        match.group(1)
        for name in [*kernel_names, *find_claim_names()]
        if (match := _LAB_ID_PATTERN.match(name))
    }
    return tuple(_read_entry(lab_id) for lab_id in sorted(ids))


def _read_entry(lab_id: str) -> LabEntry:
    holder = find_holder(lab_id)
    namespace_count = len(netns.list_namespaces(f"{lab_id}-"))
    if holder is None:
        return LabEntry(lab_id, "", "debris", None, "", namespace_count)
    return LabEntry(
        lab_id,
        holder.lab,
        "live",
        holder.pid or None,
        holder.subnet,
        namespace_count,
        rate_mbps=holder.rate_mbps,
        user=holder.user,
    )


def dismantle(lab_id: str) -> None:
    """Remove the processes, the root-side link and the namespaces of a lab, as far as they exist.

    The caller holds the claim of the lab. The link is deleted explicitly and before the namespaces: the kernel removes
    the links of a deleted namespace only some time later, but the subnet must be free when this returns.
    """
    namespaces = netns.list_namespaces(f"{lab_id}-")
    netns.end_processes(namespaces)
    link = LabNames(lab_id).root_link
    if Path("/sys/class/net", link).exists():
        netns.run_batch("ip", [f"link del {link}"])
    netns.delete_namespaces(namespaces)


def remove_debris(lab_ids: Iterable[str] | None = None) -> tuple[str, ...]:
    """Remove labs whose claim is free, all or those in `lab_ids`, and return their ids."""
    debris_ids = {lab.id for lab in find_labs() if lab.state == "debris"}
    if lab_ids is not None:
        debris_ids &= set(lab_ids)
    removed_ids = tuple(lab_id for lab_id in sorted(debris_ids) if _remove_if_free(lab_id))
    for name in find_claim_names():
        if name.startswith("subnet-") and (claim := Claim.try_acquire(name)):
            claim.release()
    return removed_ids


def _remove_if_free(lab_id: str) -> bool:
    """Remove a lab; return False if its claim is not free."""
    claim = Claim.try_acquire(lab_id)
    if claim is None:
        return False
    try:
        dismantle(lab_id)
    finally:
        claim.release()
    return True


def end_labs(lab_ids: Iterable[str]) -> tuple[str, ...]:
    """End live labs, remove the remains of all named labs, and return the ids.

    A supervisor gets SIGTERM and, after `_END_TIMEOUT_S`, SIGKILL. Raise `LabError` with code `no_such_lab` for an
    unknown id, before any lab ends.
    """
    ids = tuple(lab_ids)
    lab_by_id = {lab.id: lab for lab in find_labs()}
    if unknown_ids := [lab_id for lab_id in ids if lab_id not in lab_by_id]:
        raise LabError(
            f"no lab {', '.join(unknown_ids)} on this machine",
            hint=f"Running labs: {', '.join(lab_by_id) or 'none'}",
            code="no_such_lab",
        )
    live_labs = [lab_by_id[lab_id] for lab_id in ids if lab_by_id[lab_id].state == "live"]
    for lab in live_labs:
        _send_signal(lab, signal.SIGTERM)
    for lab in live_labs:
        if not _wait_until_free(lab.id, _END_TIMEOUT_S):
            _send_signal(lab, signal.SIGKILL)
            _wait_until_free(lab.id, _END_TIMEOUT_S)
    remove_debris(lab_ids=ids)
    return ids


def _send_signal(lab: LabEntry, signal_number: signal.Signals) -> None:
    """Send a signal to the supervisor, if it is alive."""
    # Read now: while the process holds the claim, no other process can have its pid.
    holder = find_holder(lab.id)
    if holder is not None and holder.pid:
        with suppress(ProcessLookupError):
            os.kill(holder.pid, signal_number)


def _wait_until_free(lab_id: str, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while find_holder(lab_id) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_INTERVAL_S)
    return True
