"""Labs on this machine, found by the names of what they left in the kernel; and the removal of any of them.

There is no state file to go stale: a lab's namespaces, its link on the root side and its claim all bear its id.
A lab whose claim is held is live; any other is debris of a supervisor that was killed.
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

from sim.lab.claims import Claim, claim_names, holder_of, this_user
from sim.lab.model import LabError
from sim.twins.hosts import netns

_ID = re.compile(r"^(lb[0-9a-f]{6})(?:-|$)")
_END_TIMEOUT_S = 10.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class LabNames:
    """Names of one lab in the kernel."""

    lab_id: str

    @property
    def management(self) -> str:
        """The namespace of the management bridge and of the twins' sockets."""
        return f"{self.lab_id}-mgmt"

    @property
    def fabric(self) -> str:
        """The namespace of the optical fabric."""
        return f"{self.lab_id}-fab"

    @property
    def root_link(self) -> str:
        """Our own interface in the management network."""
        return f"{self.lab_id}-0"

    def host(self, name: str) -> str:
        """Return the network namespace of a host."""
        return f"{self.lab_id}-{name}"


@dataclass(frozen=True, slots=True)
class FoundLab:
    """One lab as it was found; of one that is not live only `id` and `namespaces` are known.

    `rate_mbps` is that of its links, `user` who started it.
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
    def is_of_others(self) -> bool:
        """True if another user keeps it alive."""
        return self.state == "live" and self.user not in ("", this_user())

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `--status`."""
        return asdict(self)


def find_labs() -> tuple[FoundLab, ...]:
    """Return all labs of this machine, live and debris, by id.

    Without root only one's own labs are seen: they have no namespaces, and root's are root's business.
    """
    in_kernel = (
        [*netns.list_namespaces("lb"), *[name for _, name in socket.if_nameindex()]]
        if os.geteuid() == 0
        else []
    )
    ids = {match.group(1) for name in [*in_kernel, *claim_names()] if (match := _ID.match(name))}
    return tuple(_look(lab_id) for lab_id in sorted(ids))


def _look(lab_id: str) -> FoundLab:
    holder = holder_of(lab_id)
    count = len(netns.list_namespaces(f"{lab_id}-"))
    if holder is None:
        return FoundLab(lab_id, "", "debris", None, "", count)
    return FoundLab(
        lab_id,
        holder.lab,
        "live",
        holder.pid or None,
        holder.subnet,
        count,
        rate_mbps=holder.rate_mbps,
        user=holder.user,
    )


def dismantle(lab_id: str) -> None:
    """Remove processes, root-side link and namespaces of a lab, whatever is there of them.

    The caller holds the lab's claim. The link goes first and by itself: a namespace takes its links along
    only some time later, and the subnet must be free when this returns.
    """
    namespaces = netns.list_namespaces(f"{lab_id}-")
    netns.end_processes(namespaces)
    link = LabNames(lab_id).root_link
    if Path("/sys/class/net", link).exists():
        netns.batch("ip", [f"link del {link}"])
    netns.delete(namespaces)


def remove_debris(only: Iterable[str] | None = None) -> tuple[str, ...]:
    """Remove labs whose claim is free (all, or those named), and return which they were."""
    wanted = {lab.id for lab in find_labs() if lab.state == "debris"}
    if only is not None:
        wanted &= set(only)
    removed = tuple(lab_id for lab_id in sorted(wanted) if _remove(lab_id))
    for name in claim_names():
        if name.startswith("subnet-") and (claim := Claim.take(name)):
            claim.release()
    return removed


def _remove(lab_id: str) -> bool:
    """Return True if the claim was free and the lab is gone now."""
    claim = Claim.take(lab_id)
    if claim is None:
        return False
    try:
        dismantle(lab_id)
    finally:
        claim.release()
    return True


def end_labs(lab_ids: Iterable[str]) -> tuple[str, ...]:
    """End live labs (ask, wait, then kill their supervisors), and remove what is left of all named.

    Raises `LabError` with code `no_such_lab` when an id is not here; nothing is ended then.
    """
    wanted = tuple(lab_ids)
    here = {lab.id: lab for lab in find_labs()}
    if unknown := [lab_id for lab_id in wanted if lab_id not in here]:
        raise LabError(
            f"no lab {', '.join(unknown)} on this machine",
            hint=f"Running labs: {', '.join(here) or 'none'}",
            code="no_such_lab",
        )
    live = [here[lab_id] for lab_id in wanted if here[lab_id].state == "live"]
    for lab in live:
        _signal(lab, signal.SIGTERM)
    for lab in live:
        if not _wait_free(lab.id, _END_TIMEOUT_S):
            _signal(lab, signal.SIGKILL)
            _wait_free(lab.id, _END_TIMEOUT_S)
    remove_debris(only=wanted)
    return wanted


def _signal(lab: FoundLab, number: signal.Signals) -> None:
    """Signal the supervisor. It holds the claim that bears this number, so the number is still its own."""
    holder = holder_of(lab.id)
    if holder is not None and holder.pid:
        with suppress(ProcessLookupError):
            os.kill(holder.pid, number)


def _wait_free(lab_id: str, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while holder_of(lab_id) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
