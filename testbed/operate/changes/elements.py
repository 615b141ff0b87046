"""Elements that a plan touches, also those that it does not name: both ends of circuits, hosts that forward there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lightbed.wording import counted
from testbed.design.model import Link
from testbed.lab.model import Lab
from testbed.operate.design import Design
from testbed.operate.model import LabPlan, SwitchPlan
from testbed.operate.plan import in_scope, pair_label, port_owners

Touch = Literal["made", "removed", "disturbed", "transmits", "receives", "forwards"]
SwitchPair = tuple[str, int, int]

_ENDS: tuple[Touch, Touch] = ("transmits", "receives")
_LIGHT = {
    "made": "gets light",
    "removed": "loses light",
    "disturbed": "may lose light for a moment",
}


@dataclass(frozen=True, slots=True)
class Element:
    """One circuit, NIC or host that a plan touches, and why. `is_direct` is True for what a step names."""

    kind: Literal["circuit", "nic", "host"]
    name: str
    touch: Touch
    reason: str
    is_direct: bool = False

    def json(self) -> dict[str, object]:
        """Return the same for programs."""
        return {
            "kind": self.kind,
            "name": self.name,
            "touch": self.touch,
            "reason": self.reason,
            "direct": self.is_direct,
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """A topology with the hosts that it is for: the one that a plan makes, or the one that it takes away."""

    lab: Lab
    design: Design


def touched_elements(lab: Lab, plan: LabPlan, standing: Sequence[Standing]) -> tuple[Element, ...]:
    """Return every element that a plan touches: circuits, then the NICs at their ends, then hosts that forward.

    `standing` are the topologies before and after: packets of either cross the circuits that are touched.
    """
    touches = _touched_circuits(plan)
    return (*_circuits(lab, touches), *_nics(lab, touches), *_hosts(touches, standing))


def _touched_circuits(plan: LabPlan) -> dict[SwitchPair, Touch]:
    touches: dict[SwitchPair, Touch] = {}
    for part in plan.switches:
        for pair, touch in sorted(_touches(part).items()):
            touches[part.switch, *pair] = touch
    return touches


def _touches(part: SwitchPlan) -> dict[tuple[int, int], Touch]:
    """Return what becomes of each circuit of one switch, others' circuits that a step disturbs with them."""
    seen, wanted = in_scope(part), part.target.pairs
    disturbed = frozenset().union(*(step.disturbed for step in part.steps))
    touches: dict[tuple[int, int], Touch] = dict.fromkeys(
        disturbed & part.seen.connections.pairs, "disturbed"
    )
    touches |= dict.fromkeys(seen - wanted, "removed")
    return touches | dict.fromkeys(wanted - seen, "made")


def _circuits(lab: Lab, touches: Mapping[SwitchPair, Touch]) -> Iterator[Element]:
    owners = port_owners(lab)
    for (switch, source, output), touch in touches.items():
        reason = "kept; a step of its switch may interrupt its light"
        if touch != "disturbed":
            reason = "the topology has it" if touch == "made" else "the topology does not have it"
        label = pair_label(owners, switch, (source, output))
        name = f"{switch}:{source}->{output}"
        yield Element("circuit", name, touch, f"{label}: {reason}", is_direct=touch != "disturbed")


def _nics(lab: Lab, touches: Mapping[SwitchPair, Touch]) -> Iterator[Element]:
    """Yield both ends of every circuit; a NIC may be the end of several, in either direction."""
    owners = port_owners(lab)
    for (switch, *pair), touch in touches.items():
        reason = f"its circuit {switch}:{pair[0]}->{pair[1]} {_LIGHT[touch]}"
        for port, does in zip(pair, _ENDS, strict=True):
            if (switch, port) in owners:
                yield Element("nic", owners[switch, port], does, reason)


def _hosts(touches: Mapping[SwitchPair, Touch], standing: Sequence[Standing]) -> Iterator[Element]:
    over: defaultdict[str, list[str]] = defaultdict(list)
    for one in standing:
        for host, flow in _forwarded(one, touches):
            over[host].append(flow)
    for host in sorted(over):
        flows = list(dict.fromkeys(over[host]))
        reason = (
            f"forwards packets of {counted(len(flows), 'pair')} over circuits that change, such as {flows[0]}"
        )
        yield Element("host", host, "forwards", reason)


def _forwarded(one: Standing, touches: Iterable[SwitchPair]) -> Iterator[tuple[str, str]]:
    """Yield hosts with the pairs whose packets they forward on a way with a touched circuit."""
    lab, touched = one.lab, frozenset(touches)
    changed = {link for link in one.design.wiring.links if _place(lab, link) in touched}
    for routes in (one.design.routes, *one.design.further):
        for source, target in routes.first_link:
            way = routes.path(source, target)
            if changed.isdisjoint(way):
                continue
            for hop in way[:-1]:
                yield lab.hosts[hop.target.node].name, f"{lab.hosts[source].name} -> {lab.hosts[target].name}"


def _place(lab: Lab, link: Link) -> SwitchPair:
    transmit, receive = lab.nic(link.source).transmit, lab.nic(link.target).receive
    return transmit.switch, transmit.port, receive.port
