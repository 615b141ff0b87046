r"""A lease, its states, and what it is made of.

    requested --> queued --> granted --> draining --> expired
         \___________\___________\___________\------> released | broken

`requested` is a reservation whose time has not come, `queued` waits for others, `draining` has expired while an
operation was in flight. A lease is of parts: a host with its NICs and their ports of switches, a NIC with its ports, a
port, a board. Two leases are in each other's way if they have a part in common.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from testbed.errors import LeaseImpossible
from testbed.lab.model import Lab, LabHost, LabNic

State = Literal["requested", "queued", "granted", "draining", "expired", "released", "broken"]

TRANSITIONS: dict[State, frozenset[State]] = {
    "requested": frozenset({"queued", "expired", "released", "broken"}),
    "queued": frozenset({"granted", "expired", "released", "broken"}),
    "granted": frozenset({"draining", "expired", "released", "broken"}),
    "draining": frozenset({"expired", "released", "broken"}),
    "expired": frozenset(),
    "released": frozenset(),
    "broken": frozenset(),
}
WAITING: frozenset[State] = frozenset({"requested", "queued"})
HELD: frozenset[State] = frozenset({"granted", "draining"})
LIVING = WAITING | HELD


@dataclass(frozen=True, slots=True)
class Lease:
    """A right to move parts of a lab. Times are seconds since 1970.

    `arrival` orders requests; `token` is that of its grant, larger than any before. `process` asked for it, and
    `operation` is the process that moves the lab under it now. An implicit one ends with its process. The `reason` is
    that of the request, and of its end when that has one.
    """

    id: str
    lab: str
    owner: str
    process: str
    state: State
    arrival: int
    priority: int
    resources: tuple[str, ...]
    parts: frozenset[str]
    ttl_s: float
    requested_s: float
    expires_s: float
    token: int | None = None
    allowed: tuple[str, ...] = ()
    is_implicit: bool = False
    starts_s: float | None = None
    granted_s: float | None = None
    ended_s: float | None = None
    operation: str | None = None
    reason: str = ""

    def become(self, state: State, **changes: object) -> Lease:
        """Return the lease in another state. Raises `ValueError` for a transition that is not in the table."""
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"lease {self.id} is {self.state} and cannot become {state}")
        return replace(self, state=state, **changes)  # type: ignore[arg-type]

    def reason_of_end(self, why: str) -> str:
        """Return why it ended and what it was for, as far as either was told."""
        return f"{why}; it was for: {self.reason}" if why and self.reason else why or self.reason

    @property
    def is_held(self) -> bool:
        """True while nobody else can have its parts."""
        return self.state in HELD

    def may_be_used_by(self, owner: str) -> bool:
        """Return whether this person holds it, or was allowed to use it."""
        return owner == self.owner or owner in self.allowed or owner.partition("@")[0] in self.allowed


def parts_of_lab(lab: Lab) -> dict[str, frozenset[str]]:
    """Return what can be leased of a lab: the parts that each resource stands for, by its name."""
    found: dict[str, frozenset[str]] = {}
    for switch in lab.switches:
        for number in range(1, switch.inputs + switch.outputs + 1):
            found[f"port:{switch.name}/{number}"] = frozenset({f"port:{switch.name}/{number}"})
    for host in (*lab.hosts, *lab.others):
        nics = {f"nic:{host.name}/{nic.name}": _of_nic(host, nic) for nic in (*host.nics, *host.unused)}
        found |= nics
        found[f"host:{host.name}"] = frozenset({f"host:{host.name}"}).union(*nics.values())
    return found


def _of_nic(host: LabHost, nic: LabNic) -> frozenset[str]:
    ends = (nic.transmit, nic.receive)
    ports = {f"port:{end.switch}/{end.port}" for end in ends if end.switch}
    return frozenset({f"nic:{host.name}/{nic.name}"} | ports)


def parts_of(lab: Lab, resources: Iterable[str]) -> frozenset[str]:
    """Return the parts of resources: `host:a`, `nic:a/nic1`, `port:ocs1/5`, `board:kit1`; of none, all of the lab.

    Boards do not stand in lab files: any name will do. Raises `LeaseImpossible` for what the lab does not have.
    """
    known = parts_of_lab(lab)
    wanted = tuple(resources)
    missing = [name for name in wanted if name not in known and not _is_board(name)]
    if missing:
        form = "host:NAME, nic:HOST/NIC, port:SWITCH/NUMBER or board:NAME"
        raise LeaseImpossible(
            f"lab '{lab.name}' has no {', '.join(missing)}, so this request can never be granted; name {form}"
        )
    if not wanted:
        return frozenset().union(*known.values())
    return frozenset().union(*(known.get(name, frozenset({name})) for name in wanted))


def _is_board(name: str) -> bool:
    return name.startswith("board:") and len(name) > len("board:")
