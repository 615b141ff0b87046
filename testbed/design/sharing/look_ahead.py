"""Look-ahead plane: the circuits of the next job are made while the current job runs.

Each interface has a 1x2 switch to two planes of optical switches. While the current job uses one plane, the circuits of
the next job are made on the other plane. When the next job starts, its interfaces flip. A patch panel takes minutes, a
1x2 switch milliseconds. These functions only plan; the lab executes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from testbed.design.model import Link, Nic, Wiring
from testbed.errors import TopologyError


@dataclass(frozen=True, slots=True)
class TwoPlanes:
    """Circuits of both planes. Interfaces in `on_second` use the second plane, all others the first."""

    nodes: int
    degree: int
    first: frozenset[Link]
    second: frozenset[Link]
    on_second: frozenset[Nic] = frozenset()

    def find_lit_links(self) -> frozenset[Link]:
        """Return the links that carry light: both ends use the plane that holds the link."""
        return frozenset(
            link
            for plane, links in ((False, self.first), (True, self.second))
            for link in links
            if (link.source in self.on_second) == (link.target in self.on_second) == plane
        )


@dataclass(frozen=True, slots=True)
class LookAhead:
    """Plan for the next job: change links on the idle plane now, and flip the job's interfaces at its start.

    `uses_second_plane` tells whether the job uses the second plane. `planes_after` is the state after all changes. If
    the links are already lit, nothing changes.
    """

    uses_second_plane: bool
    removed_links: tuple[Link, ...]
    new_links: tuple[Link, ...]
    flipped_nics: tuple[Nic, ...]
    planes_after: TwoPlanes

    def compute_outage_s(self, flip_s: float) -> float:
        """Return how long the job's interfaces are dark, in seconds. They flip at the same time."""
        return flip_s if self.flipped_nics else 0.0


def start_on_first_plane(wiring: Wiring) -> TwoPlanes:
    """Return two planes with a job's links on the first, which is lit, and no links on the second."""
    return TwoPlanes(wiring.nodes, wiring.degree, frozenset(wiring.links), frozenset())


def plan_look_ahead(
    planes: TwoPlanes, upcoming_wiring: Wiring, nodes: Collection[int] | None = None
) -> LookAhead:
    """Plan the next job of `nodes` (default: all) on the plane that these nodes do not use now.

    Circuits that the idle plane still holds are kept. Jobs of other nodes are not affected.
    Raises `TopologyError` if the wiring has links to other nodes, a node is unknown, or the interfaces of the nodes are
    not all on one plane.
    """
    own_nodes = set(range(planes.nodes) if nodes is None else nodes)
    nics = frozenset(Nic(node, index) for node in own_nodes for index in range(planes.degree))
    foreign_nics = [nic for link in upcoming_wiring.links for nic in link if nic not in nics]
    unknown_nodes = sorted(own_nodes - set(range(planes.nodes)))
    if foreign_nics:
        raise TopologyError(
            f"the wiring uses NIC {foreign_nics[0].index} of node {foreign_nics[0].node}, which is not a NIC of the "
            "job's nodes: give all nodes of the job"
        )
    if unknown_nodes:
        raise TopologyError(
            f"the job names node {unknown_nodes[0]}, but the planes have {planes.nodes} nodes: "
            f"give nodes 0 to {planes.nodes - 1}"
        )
    if frozenset(upcoming_wiring.links) == {
        link for link in planes.find_lit_links() if {link.source, link.target} & nics
    }:
        return LookAhead(nics <= planes.on_second, (), (), (), planes)
    uses_second_plane = not nics & planes.on_second
    if not uses_second_plane and not nics <= planes.on_second:
        raise TopologyError("the interfaces of the job use both planes: flip them to one plane first")
    idle_links = planes.second if uses_second_plane else planes.first
    own_links = {link for link in idle_links if {link.source, link.target} & nics}
    upcoming_links = frozenset(upcoming_wiring.links)
    new_links = (idle_links - own_links) | upcoming_links
    planes_after = replace(
        planes,
        first=planes.first if uses_second_plane else new_links,
        second=new_links if uses_second_plane else planes.second,
        on_second=planes.on_second | nics if uses_second_plane else planes.on_second - nics,
    )
    return LookAhead(
        uses_second_plane,
        tuple(sorted(own_links - upcoming_links)),
        tuple(sorted(upcoming_links - own_links)),
        tuple(sorted(nics)),
        planes_after,
    )
