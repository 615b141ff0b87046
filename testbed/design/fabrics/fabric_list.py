"""The list of fabrics that a job can be simulated on. A new fabric is an entry here and the function that builds it.

Each host has d links of a rate R:

| name | each host has | what it is |
|---|---|---|
| `ideal` | one link of d * R | a switch that never blocks |
| `fattree` | one link of d * R, or of the rate that costs as much as `direct` | a full-bisection Fat-tree |
| `oversub` | one link of d * R | a Fat-tree with half the links (or less) above the edge |
| `direct` | d links of R | optical circuits as TopologyFinder places them for the demand; hosts forward |
| `expander` | d links of R | links to random others; hosts forward |
| `circuits` | d circuits of R | an optical switch that follows the demand within an iteration |
| `circuits-forwarding` | d circuits of R | the same with one circuit in a ring, over which hosts forward |

Direct connect pays for a look-ahead plane of patch panels. The list needs no numerical library: commands show it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.errors import TopologyError

if TYPE_CHECKING:
    from testbed.design.fabrics.builders import ChosenFabric, FabricRequest


@dataclass(frozen=True, slots=True)
class FabricEntry:
    """A fabric by name; `builder` is the function of `builders` that makes it.

    `is_switched`: of packet switches, so that a host has one link, and nobody forwards for others. `has_equal_cost`:
    may be given the rate at which it costs as much as direct connect.
    """

    name: str
    builder: str
    is_switched: bool = False
    has_equal_cost: bool = False


ENTRIES = (
    FabricEntry("ideal", "ideal", is_switched=True),
    FabricEntry("fattree", "full_fat_tree", is_switched=True, has_equal_cost=True),
    FabricEntry("oversub", "oversubscribed_fat_tree", is_switched=True),
    FabricEntry("direct", "direct"),
    FabricEntry("expander", "random_links"),
    FabricEntry("circuits", "circuits"),
    FabricEntry("circuits-forwarding", "circuits_forwarding"),
)

FABRICS = tuple(entry.name for entry in ENTRIES)
SWITCHED = frozenset(entry.name for entry in ENTRIES if entry.is_switched)


def build_fabric(asked: FabricRequest) -> ChosenFabric:
    """Return the fabric that is asked for; `.fabric` is the simulator's.

    Raises `TopologyError` for an unknown name and a fabric that cannot be.
    """
    from testbed.design.fabrics import builders
    from testbed.design.model import check_rate

    name = asked.name
    check_rate(asked.rate_gbps)
    entry = next((entry for entry in ENTRIES if entry.name == name), None)
    if asked.equal_cost and not (entry and entry.has_equal_cost):
        raise TopologyError(f"fabric {name!r} at equal cost: only a Fat-tree is, take 'fattree'")
    if entry is None:
        raise TopologyError(f"unknown fabric {name!r}: choose {', '.join(FABRICS)}")
    build: Callable[[FabricRequest], ChosenFabric] = getattr(builders, entry.builder)
    try:
        return builders.with_routing(build(asked), asked.options)
    except ValueError as error:
        size = f"{asked.nodes} nodes, degree {asked.degree}"
        raise TopologyError(f"no fabric {name!r} of {size}: {error}") from error
