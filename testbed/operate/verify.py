"""Prove that what is there is what was planned: circuits, light, fibres, kernels of the hosts, and packets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ocs_drivers.contract import OpticalSwitch
from testbed.design.model import Routes
from testbed.lab.model import Lab
from testbed.operate.light import judge_circuits, read_light
from testbed.operate.model import Circuit, LabPlan, LinkFinding, VerifyReport
from testbed.operate.probe_findings import links_received
from testbed.operate.proof.evidence import gather
from testbed.operate.proof.judge import judge
from testbed.operate.proof.reach_findings import Way, count_pings, find_loss_floor
from testbed.operate.unfinished import Unfinished

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet


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
    sets = (routes, *further) if routes else ()
    pings = count_pings(sets) if sets else None
    evidence = gather(lab, plan, switches, fleet, epoch=epoch, off=off or {}, pings=pings)
    findings = judge(lab, plan, routes, evidence, left, further)
    held = {
        name: tuple(sorted(reading.snapshot.connections.pairs)) for name, reading in evidence.switches.items()
    }
    heard = links_received(lab, plan.wiring, evidence.probe) if evidence.probe else 0
    report = VerifyReport(len(plan.circuits), heard, findings, held=held)
    if not evidence.reached:
        return report
    pairs = plan.wiring.nodes * (plan.wiring.nodes - 1)
    missing = {pair for one in evidence.reached for pair in one.missing}
    nodes = {host.name: node for node, host in enumerate(lab.hosts)}
    sent = {
        Way(number, nodes[a], nodes[b]): count
        for number, one in enumerate(evidence.reached)
        for (a, b), (_, count) in one.lost.items()
    }
    floor = find_loss_floor(sets, sent)
    answered = len(evidence.reached[0].answered - missing)
    return replace(report, pairs=pairs, pairs_reached=answered, loss_floor=floor)
