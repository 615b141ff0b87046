"""Tell transmit from receive fibres, or one cable from the other, by taking one circuit of a finding down for a moment.

Two links that hear each other's sources look the same whether their transmit or their receive fibres are exchanged.
With the circuit of one link taken down the NIC that goes dark tells: that link's own target, if the exchanged ends are
at the sources; the other link's target, if they are at the targets. The circuit is put back whatever happens.
"""

from __future__ import annotations

import time
from dataclasses import replace

from ocs_drivers.model import CrossConnects
from testbed.design.model import Link
from testbed.operate.light import held_circuits
from testbed.operate.loss import read_carriers
from testbed.operate.model import Circuit, LabPlan, LinkFinding, SwitchPlan, VerifyReport
from testbed.operate.probe_findings import Fibre, fibre_end
from testbed.operate.session import Design, LabSession, Note

SETTLE_S = 2.0
POLL_S = 0.05


def narrow(
    session: LabSession, design: Design, report: VerifyReport, note: Note = lambda _text: None
) -> VerifyReport:
    """Return the report with `swapped` findings of two links narrowed to one end. Changes circuits for a moment.

    Only circuits of the findings are touched, each with an intent in the journal; `note` is told which. Raises
    what `LabSession.apply` raises, and `HostError`.
    """
    if session.fleet is None:
        return report
    labels = {session.lab.link_label(link): link for link in design.wiring.links}
    findings = []
    for finding in report.findings:
        names = finding.subject.split(" and ")
        links = [labels[name] for name in names if name in labels]
        if finding.kind == "swapped" and len(links) == len(names) and len(links) in (2, 4):
            findings.append(_narrowed(session, design, finding, links, note))
        else:
            findings.append(finding)
    return replace(report, findings=tuple(findings))


def _narrowed(
    session: LabSession, design: Design, finding: LinkFinding, links: list[Link], note: Note
) -> LinkFinding:
    """Return the finding of two links, or of four that two cables carry, with the end that is exchanged."""
    one, other = links[:2]
    snapshots = {name: switch.read() for name, switch in session.switches.items()}
    circuit = next((c for c in held_circuits(session.lab, snapshots) if c.link == one), None)
    if circuit is None:
        return finding
    dark = _dark_without(session, design, circuit, (one, other), note)
    if dark is None:
        return finding
    lab = session.lab
    at_source = dark == one
    nics = [link.source if at_source else link.target for link in (one, other)]
    names = " and ".join(lab.nic_label(nic) for nic in nics)
    tried = f"without the circuit of {lab.link_label(one)}, {lab.nic_label(dark.target)} went dark"
    if len(links) == 4:
        return replace(finding, detail=f"the whole cables of {names} are exchanged: {tried}")
    side: Fibre = "transmit" if at_source else "receive"
    places = " and ".join(fibre_end(lab, nic, side) for nic in nics)
    return replace(finding, detail=f"the {side} fibres at {places} ({names}) are swapped: {tried}")


def _dark_without(
    session: LabSession, design: Design, circuit: Circuit, links: tuple[Link, Link], note: Note
) -> Link | None:
    """Return the link whose target goes dark while a circuit is down; None when neither or both do."""
    assert session.fleet is not None
    before = read_carriers(session.fleet, session.lab)
    if not all(before[link.target] for link in links):
        return None
    note(
        f"circuit {circuit.input_port} -> {circuit.output_port} of {circuit.switch} is taken down for a moment"
    )
    try:
        session.apply(_plan(session, design, circuit, is_there=False))
        dark = _first_dark(session, links)
    finally:
        session.apply(_plan(session, design, circuit, is_there=True))
        note(f"circuit {circuit.input_port} -> {circuit.output_port} of {circuit.switch} is put back")
    return dark[0] if len(dark) == 1 else None


def _first_dark(session: LabSession, links: tuple[Link, Link]) -> list[Link]:
    assert session.fleet is not None
    deadline = time.monotonic() + SETTLE_S
    while True:
        carriers = read_carriers(session.fleet, session.lab)
        dark = [link for link in links if not carriers[link.target]]
        if dark or time.monotonic() > deadline:
            return dark
        time.sleep(POLL_S)


def _plan(session: LabSession, design: Design, circuit: Circuit, *, is_there: bool) -> LabPlan:
    """Return the plan that makes or removes one circuit and touches no other."""
    switch = session.switches[circuit.switch]
    seen, scope = switch.read(), frozenset({circuit.input_port})
    target = CrossConnects({circuit.input_port: circuit.output_port} if is_there else {})
    part = SwitchPlan(circuit.switch, target, scope, seen, switch.plan(target, seen, scope))
    return LabPlan(design.wiring, (circuit,), (part,))
