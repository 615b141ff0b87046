"""Designs: topologies laid onto the NICs of a lab, from options, from a plan, or from a stored epoch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from testbed.design.model import Routes, Topology, Wiring
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import AllReduceDemand, find_topology
from testbed.design.topology.strides import Method
from testbed.errors import PlanFileError, TopologyError
from testbed.lab.model import Lab, make_shard
from testbed.operate.intent import Intent

if TYPE_CHECKING:
    from testbed.design.plans.file import Plan
    from testbed.design.routing.route_sets import RouteSets


@dataclass(frozen=True, slots=True)
class Design:
    """A topology, laid onto the lab's NICs, with routes between all nodes.

    If a plan spreads pairs over several sets of routes, `further_routes` holds the sets after the first, and
    `route_sets` holds all sets with the weights of the plan.
    """

    name: str
    topology: Topology
    wiring: Wiring
    routes: Routes
    further_routes: tuple[Routes, ...] = ()
    route_sets: RouteSets | None = None


def build_design(
    lab: Lab,
    *,
    name: str = "default",
    simplex: bool = False,
    method: Method = "geometric",
    demands: tuple[AllReduceDemand, ...] = (),
) -> Design:
    """Return a wired and routed topology of all hosts of a lab, with as many NICs as every host has.

    Raises `TopologyError`.
    """
    degree = count_usable_nics(lab)
    return lay_out(
        lab, name, find_topology(len(lab.hosts), degree, simplex=simplex, method=method, demands=demands)
    )


def count_usable_nics(lab: Lab) -> int:
    """Return the number of NICs that every host can use: the smallest count of NICs that are not `unused`.

    Raises `TopologyError` if hosts have different numbers of NICs in the lab file.
    """
    degrees = {len(host.nics) + len(host.unused_nics) for host in lab.hosts}
    if len(degrees) != 1:
        raise TopologyError(
            f"{lab.path}: hosts have {sorted(degrees)} NICs; a topology needs the same number on every host: "
            "list equally many `nics` for each"
        )
    return min(len(host.nics) for host in lab.hosts)


def find_plan_lab(lab: Lab, plan: Plan) -> Lab:
    """Return the shard of the lab that a plan is for, with hosts in the order of the plan.

    Raises `PlanFileError` if the plan is for another lab, or does not fit this one.
    """
    if plan.lab not in ("", lab.name):
        raise PlanFileError(
            f"the plan is for lab '{plan.lab}', not for '{lab.name}': make one with --lab {lab.path}"
        )
    try:
        job_lab = make_shard(lab, plan.hosts) if plan.hosts else lab
        degree = count_usable_nics(job_lab)
    except TopologyError as error:
        raise PlanFileError(f"the plan does not fit lab '{lab.name}': {error}") from error
    plan_size = (plan.topology.nodes, plan.topology.degree)
    if plan_size[0] != len(job_lab.hosts) or plan_size[1] > degree:
        description = (
            f"{plan_size[0]} hosts with {plan_size[1]} NICs, but lab '{lab.name}' has "
            f"{len(job_lab.hosts)} with {degree}"
        )
        raise PlanFileError(f"the plan is for {description}: make one with --lab {lab.path}")
    return job_lab


def build_plan_design(lab: Lab, plan: Plan) -> Design:
    """Return the topology of a plan, laid onto the NICs of a lab, with its routes. Raises `TopologyError`.

    `lab` is the result of `find_plan_lab`. If the plan has no routes, they are computed for its workload. If the
    workload is unknown too, shortest paths are used.
    """
    from testbed.design.evaluation.job import make_plan_routes  # imported late: it imports all workloads

    design, route_sets = lay_out(lab, plan.workload.name, plan.topology), make_plan_routes(plan)
    return design if route_sets is None else replace_routes(design, route_sets)


def replace_routes(design: Design, route_sets: RouteSets) -> Design:
    """Return the design with these sets of routes, mapped to its links. Raises `TopologyError`."""
    # Imported late: it imports numpy, which only plans with several sets of routes need.
    from testbed.design.routing.route_sets import map_routes

    first_routes, *further_routes = map_routes(route_sets, design.wiring)
    return replace(design, routes=first_routes, further_routes=tuple(further_routes), route_sets=route_sets)


def build_intent_design(lab: Lab, intent: Intent) -> tuple[Lab, Design]:
    """Return the shard of a stored epoch and its design with the stored links. Raises `IntentError`."""
    intent.check_fits(lab)
    return make_shard(lab, intent.hosts), load_design(intent)


def load_design(intent: Intent) -> Design:
    """Return the design of a stored epoch, with the routes of its plan, or else with shortest paths."""
    design = Design(intent.name, intent.topology, intent.wiring, find_routes(intent.wiring))
    route_sets = _find_plan_routes(intent)
    return design if route_sets is None else replace_routes(design, route_sets)


def _find_plan_routes(intent: Intent) -> RouteSets | None:
    """Return the routes of an epoch's plan, or None for shortest paths.

    After a repair, they are computed again for the plan's workload on the remaining topology.
    """
    if intent.topology_source.plan_text is None:
        return None
    import json

    from testbed.design.evaluation.job import find_routes_for, make_plan_routes
    from testbed.design.plans.file import parse_plan

    plan = parse_plan(json.loads(intent.topology_source.plan_text), intent.topology_source.options_text)
    if intent.topology_source.repaired_epoch is not None:
        return find_routes_for(plan, intent.topology)
    route_sets = make_plan_routes(plan)
    return route_sets if route_sets and route_sets.topology.edges == intent.topology.edges else None


def lay_out(lab: Lab, name: str, topology: Topology) -> Design:
    """Return a topology laid onto the NICs of a lab, with shortest paths as routes. Raises `TopologyError`."""
    wiring = make_wiring(topology, plane_count=_count_planes(lab, topology.degree))
    return Design(name, topology, wiring, find_routes(wiring))


def check_fits(lab: Lab, degree: int, *, simplex: bool = False) -> None:
    """Raise `TopologyError` unless connected topologies of this degree can be patched in the lab."""
    node_count, nic_count = len(lab.hosts), count_usable_nics(lab)
    if degree > nic_count:
        raise TopologyError(f"{lab.path}: hosts have {nic_count} NICs, not {degree}: lower --degree")
    if node_count > 1:
        # A connected circulant of an even number of nodes can be split over switches (Stong, 1985), whatever its
        # strides: if this one cannot be, no other can.
        make_wiring(
            find_topology(node_count, degree, simplex=simplex), plane_count=_count_planes(lab, degree)
        )


def _count_planes(lab: Lab, degree: int) -> int:
    """Return the number of switches over which the links of a topology are spread: at most one switch per NIC."""
    return min(len(lab.switches), degree)
