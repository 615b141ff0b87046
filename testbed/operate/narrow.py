"""Tell transmit from receive fibres, or one cable from the other, by taking circuits of findings down for a moment.

Two links that hear each other's sources look the same whether their transmit or their receive fibres are exchanged.
With the circuit of one link taken down the NIC that goes dark tells: that link's own target, if the exchanged ends are
at the sources; another NIC, if they are at the targets. Of a single link that is told as swapped it tells the same.
Fibres without light are narrowed by `dark_fibres`. The circuits are put back whatever happens.
"""

from __future__ import annotations

from dataclasses import replace

from testbed.design.model import Link, Nic
from testbed.operate.dark_fibres import DarkFibres
from testbed.operate.light import held_circuits
from testbed.operate.loss import read_carriers
from testbed.operate.model import Circuit, LinkFinding, VerifyReport
from testbed.operate.probe_findings import Fibre, fibre_end
from testbed.operate.session import Design, LabSession, Note
from testbed.operate.trial import carriers_once, changed_circuits

_ADVICE = "; `testbed verify --narrow`"


def narrow(
    session: LabSession, design: Design, report: VerifyReport, note: Note = lambda _text: None
) -> VerifyReport:
    """Return the report with findings of swapped and of dark fibres narrowed to one end, where that can be told.

    Only circuits of the findings, and free ones, are touched, each with an intent in the journal; `note` is told
    which. Raises what `LabSession.apply` raises, and `HostError`.
    """
    if session.fleet is None:
        return report
    labels = {session.lab.link_label(link): link for link in design.wiring.links}
    dark = DarkFibres(session, design, note)
    findings = []
    for finding in report.findings:
        names = finding.subject.split(" and ")
        links = [labels[name] for name in names if name in labels]
        if finding.kind != "swapped":
            findings.append(dark.narrowed(finding))
            continue
        found = finding
        if len(links) == len(names):
            found = _narrowed(session, design, finding, links, note)
        findings.append(replace(found, hint=found.hint.partition(_ADVICE)[0]))
    return replace(report, findings=tuple(findings))


def _narrowed(
    session: LabSession, design: Design, finding: LinkFinding, links: list[Link], note: Note
) -> LinkFinding:
    """Return the finding of one link, of two, or of four that two cables carry, with the end that is exchanged."""
    one = links[0]
    snapshots = {name: switch.read() for name, switch in session.switches.items()}
    circuit = next((c for c in held_circuits(session.lab, snapshots) if c.link == one), None)
    dark = _dark_without(session, design, circuit, links, note) if circuit else None
    if dark is None:
        return finding
    lab = session.lab
    at_source = dark == one.target
    side: Fibre = "transmit" if at_source else "receive"
    tried = f"without the circuit of {lab.link_label(one)}, {lab.nic_label(dark)} went dark"
    if len(links) == 1:
        nic = one.source if at_source else one.target
        place = f"the {side} fibre at {fibre_end(lab, nic, side)}"
        belongs = f"is not that of {lab.nic_label(nic)}" if at_source else f"leads to {lab.nic_label(dark)}"
        return replace(finding, detail=f"{place} {belongs}: {tried}")
    nics = [link.source if at_source else link.target for link in links[:2]]
    names = " and ".join(lab.nic_label(nic) for nic in nics)
    if len(links) == 4:
        return replace(finding, detail=f"the whole cables of {names} are exchanged: {tried}")
    places = " and ".join(fibre_end(lab, nic, side) for nic in nics)
    return replace(finding, detail=f"the {side} fibres at {places} ({names}) are swapped: {tried}")


def _dark_without(
    session: LabSession, design: Design, circuit: Circuit, links: list[Link], note: Note
) -> Nic | None:
    """Return the NIC that goes dark while a circuit is down; None when none or several do.

    Of two links or more it is one of their targets, of a single one any.
    """
    assert session.fleet is not None
    before = read_carriers(session.fleet, session.lab)
    targets = (
        [link.target for link in links[:2]] if len(links) > 1 else [nic for nic, lit in before.items() if lit]
    )
    if not all(before.get(nic, False) for nic in targets):
        return None
    wanted = {circuit.input_port: None}
    with changed_circuits(session, design, circuit.switch, wanted, note):
        carriers = carriers_once(session, lambda found: not all(found[nic] for nic in targets))
    dark = [nic for nic in targets if not carriers[nic]]
    return dark[0] if len(dark) == 1 else None
