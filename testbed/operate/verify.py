"""Prove that what is there is what was planned: cross-connects, light against the budget, and fibres by probe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ocs_drivers.contract import OpticalSwitch
from testbed.errors import JournalError
from testbed.lab.hosts.probe import probe_links
from testbed.lab.model import Lab
from testbed.operate.intent import unfinished_operations
from testbed.operate.light import judge_circuits, read_light
from testbed.operate.model import Circuit, LabPlan, LinkFinding, VerifyReport
from testbed.operate.probe_findings import compare, links_received

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet


def verify_circuits(
    lab: Lab, circuits: Iterable[Circuit], switches: Mapping[str, OpticalSwitch]
) -> tuple[LinkFinding, ...]:
    """Read the switches and judge every circuit; nothing is written to any device."""
    planned = tuple(circuits)
    return judge_circuits(lab, planned, read_light(planned, switches))


def with_unfinished(report: VerifyReport, lab: Lab, runs_dir: Path) -> VerifyReport:
    """Return the report with the operations on this lab that were left unfinished, before all else.

    A journal that cannot be read is a finding too: nobody can say then that all was finished.
    """
    try:
        left = unfinished_operations(runs_dir, lab.name)
    except JournalError as error:
        found: tuple[LinkFinding, ...] = (LinkFinding("unfinished", str(runs_dir), str(error)),)
    else:
        found = tuple(LinkFinding("unfinished", one.operation, one.detail) for one in left)
    return replace(report, findings=found + report.findings)


def verify_lab(
    lab: Lab,
    plan: LabPlan,
    switches: Mapping[str, OpticalSwitch],
    fleet: Fleet | None = None,
    *,
    epoch: int = 0,
) -> VerifyReport:
    """Return the switches' own word and, with a fleet, the hosts' word on every fibre.

    Without a fleet (hosts only modelled) `links_received` is 0 and only the switches are asked. Raises the
    drivers' errors and `HostError`; what is merely not as planned is in the report.
    """
    findings = verify_circuits(lab, plan.circuits, switches)
    if fleet is None:
        return VerifyReport(len(plan.circuits), 0, findings)
    heard = probe_links(fleet, lab, epoch)
    findings += compare(lab, plan.wiring, heard)
    return VerifyReport(len(plan.circuits), links_received(lab, plan.wiring, heard), findings)
