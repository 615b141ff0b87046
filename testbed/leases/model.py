r"""A lease, its states, and the parts of a lab that it covers.

    requested --> queued --> granted --> draining --> expired
         \___________\___________\___________\------> released | broken

A `requested` lease is a reservation that has not started. A `queued` lease waits for other leases. A `draining` lease
has expired while an operation uses it. A lease covers parts: a host with its NICs and their switch ports, a NIC with
its ports, a port, or a board. Two leases conflict if they have a part in common.
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
WAITING_STATES: frozenset[State] = frozenset({"requested", "queued"})
HELD_STATES: frozenset[State] = frozenset({"granted", "draining"})
LIVING_STATES = WAITING_STATES | HELD_STATES


@dataclass(frozen=True, slots=True)
class Lease:
    """A right to change parts of a lab. Times are seconds since 1970.

    `arrival` is the number of the request; `token` is the fencing token of the grant. `process` requested the lease,
    and the process `operation` uses it now. An implicit lease ends with its process. `reason` is the reason of the
    request. If the lease has ended, the reason of the end precedes it. `allowed` names others who may use the lease.
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

    def change_state(self, state: State, **changes: object) -> Lease:
        """Return the lease in another state. Raises `ValueError` for a transition that is not in the table."""
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"lease {self.id} is {self.state} and cannot become {state}")
        return replace(self, state=state, **changes)  # type: ignore[arg-type]

    def describe_end(self, end_reason: str) -> str:
        """Return the reason of the end and the reason of the request, each only if it is given."""
        return (
            f"{end_reason}; it was for: {self.reason}"
            if end_reason and self.reason
            else end_reason or self.reason
        )

    @property
    def is_held(self) -> bool:
        """True while the lease is granted or draining; its parts cannot be granted to others."""
        return self.state in HELD_STATES

    def may_be_used_by(self, owner: str) -> bool:
        """Return True if this person owns the lease or is allowed to use it."""
        return owner == self.owner or owner in self.allowed or owner.partition("@")[0] in self.allowed


def list_lab_parts(lab: Lab) -> dict[str, frozenset[str]]:
    """Return the parts of each resource of a lab that can be leased, by the name of the resource."""
    parts_by_resource: dict[str, frozenset[str]] = {}
    for switch in lab.switches:
        for number in range(1, switch.input_count + switch.output_count + 1):
            parts_by_resource[f"port:{switch.name}/{number}"] = frozenset({f"port:{switch.name}/{number}"})
    for host in (*lab.hosts, *lab.other_hosts):
        nics = {
            f"nic:{host.name}/{nic.name}": _find_nic_parts(host, nic)
            for nic in (*host.nics, *host.unused_nics)
        }
        parts_by_resource |= nics
        parts_by_resource[f"host:{host.name}"] = frozenset({f"host:{host.name}"}).union(*nics.values())
    for board in lab.boards:
        fibre_ends = (fibre_end for port in board.ports for fibre_end in (port.transmit, port.receive))
        ports = {f"port:{fibre_end.switch}/{fibre_end.port}" for fibre_end in fibre_ends}
        parts_by_resource[f"board:{board.name}"] = frozenset({f"board:{board.name}"} | ports)
    return parts_by_resource


def _find_nic_parts(host: LabHost, nic: LabNic) -> frozenset[str]:
    fibre_ends = (nic.transmit, nic.receive)
    ports = {f"port:{fibre_end.switch}/{fibre_end.port}" for fibre_end in fibre_ends if fibre_end.switch}
    return frozenset({f"nic:{host.name}/{nic.name}"} | ports)


def find_parts(lab: Lab, resources: Iterable[str]) -> frozenset[str]:
    """Return the parts of resources such as `host:a`, `nic:a/nic1`, `port:ocs1/5`, `board:kit1`.

    Without resources, return the parts of the whole lab. A board need not be in the lab file. Raises `LeaseImpossible`
    for any other resource that the lab does not have.
    """
    parts_by_resource = list_lab_parts(lab)
    names = tuple(resources)
    missing_names = [name for name in names if name not in parts_by_resource and not _is_board(name)]
    if missing_names:
        forms_text = "host:NAME, nic:HOST/NIC, port:SWITCH/NUMBER or board:NAME"
        raise LeaseImpossible(
            f"lab '{lab.name}' has no {', '.join(missing_names)}, so this request can never be granted; "
            f"name {forms_text}"
        )
    if not names:
        return frozenset().union(*parts_by_resource.values())
    return frozenset().union(*(parts_by_resource.get(name, frozenset({name})) for name in names))


def _is_board(name: str) -> bool:
    return name.startswith("board:") and len(name) > len("board:")
