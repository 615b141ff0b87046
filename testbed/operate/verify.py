"""Prove that what is there is what was planned: circuits, light, fibres, kernels of the hosts, and packets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ocs_drivers.contract import OpticalSwitch
from testbed.design.model import Routes
from testbed.lab.model import Lab
from testbed.operate.light import judge_circuits, read_light
from testbed.operate.model import Circuit, LabPlan, LinkFinding, VerifyReport
from testbed.operate.probe_findings import links_received
from testbed.operate.proof.evidence import gather
from testbed.operate.proof.judge import judge
from testbed.operate.proof.reach_findings import count_pings, find_loss_floor
from testbed.operate.unfinished import Unfinished

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet
    from testbed.lab.hosts.reachability import Reachability


def verify_circuits(
    lab: Lab, circuits: Iterable[Circuit], switches: Mapping[str, OpticalSwitch]
) -> tuple[LinkFinding, ...]:
    """Read the switches and judge every circuit; nothing is written to any device."""
    planned = tuple(circuits)
    return judge_circuits(lab, planned, read_light(planned, switches))


def verify_lab(
    lab: Lab,
    plan: LabPlan,
    switches: Mapping[str, OpticalSwitch],
    fleet: Fleet | None = None,
    *,
    epoch: int = 0,
    routes: Routes | None = None,
    further: tuple[Routes, ...] = (),
    off: Mapping[str, str] | None = None,
    left: tuple[Unfinished, ...] = (),
) -> VerifyReport:
    """Return the switches' own word and, with a fleet, the hosts' word on every fibre; with `routes` on packets too.

    Without a fleet (hosts only modelled) `links_received` is 0 and only the switches are asked. Switches and hosts
    that are `off`, by name with the reason, are findings; so are operations that were `left` unfinished, each with
    all that it explains. Raises the drivers' errors and `HostError`; what is merely not as planned is in the report.
    """
    pings = count_pings(routes) if routes else 0
    evidence = gather(
        lab, plan, switches, fleet, epoch=epoch, off=off or {}, kernels=routes is not None, pings=pings
    )
    findings = judge(lab, plan, routes, evidence, left, further)
    if evidence.probe is None:
        return VerifyReport(len(plan.circuits), 0, findings)
    heard = links_received(lab, plan.wiring, evidence.probe)
    answered = len(evidence.reached.answered) if evidence.reached else 0
    pairs = plan.wiring.nodes * (plan.wiring.nodes - 1) if evidence.reached else 0
    floor = _loss_floor(lab, routes, evidence.reached) if routes and evidence.reached else None
    return VerifyReport(len(plan.circuits), heard, findings, pairs, answered, floor)


def _loss_floor(lab: Lab, routes: Routes, reached: Reachability) -> float | None:
    nodes = {host.name: node for node, host in enumerate(lab.hosts)}
    counts = {(nodes[a], nodes[b]): sent for (a, b), (_, sent) in reached.lost.items()}
    return find_loss_floor(routes, {pair: sent for pair, sent in counts.items() if pair in routes.first_link})
