"""Light along circuits: the power that a switch measures at both ports of a circuit, and the fibres that are lost.

    transmitter --(transmit fibre)--> input monitor --(cross-connect)--> output monitor --(receive fibre)--> receiver

A loss in dB is a difference of readings in dBm. It is excessive if it exceeds the budget of the lab file by more than
`TOLERANCE_DB`. If all light is lost, the monitors and the carriers of the hosts' NICs show which fibre is lost. Reading
monitors and carriers takes one round trip each and needs no probe frames, so a repair starts soon.

    no light at the switch's input                   the transmit fibre, or the laser, of the source
    light leaves the switch, no carrier there        the receive fibre of the target
    no monitor, no carrier                           one of these two fibres; neither NIC is used
    lit input, no light leaves, or no circuit        no fibre: run `testbed apply` first
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from lightbed.wording import MAX_SHOWN, list_some
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.model import Power, Snapshot
from testbed.design.model import Link, Nic
from testbed.errors import HostError
from testbed.lab.model import Lab, LabHost
from testbed.operate.boards import find_free_circuits
from testbed.operate.model import Circuit, FindingKind, LinkFinding
from testbed.operate.plan import find_port_owners, label_pair, list_lab_ports, list_used_ports

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet


MISSING_CIRCUIT = FindingKind("missing_circuit", "a planned cross-connect is missing", "run `testbed apply`")
EXTRA_CIRCUIT = FindingKind(
    "extra_circuit",
    "a cross-connect at a port of the lab is not planned",
    "run `testbed apply`",
    stops_packets=False,
)
NO_LIGHT = FindingKind(
    "no_light",
    "a power monitor of the switch measures no light",
    "check the laser and the transmit fibre; if the input has light, check the cross-connect",
)
EXCESS_LOSS = FindingKind(
    "excess_loss",
    "the light is more than 1 dB weaker than the lab file predicts",
    "clean the connectors that the detail names, look for a bend, or correct `loss_db`",
    stops_packets=False,
)

TOLERANCE_DB = 1.0
LostPart = Literal["transmit", "receive", "gpu"]
"""What a NIC has lost: one of its fibres, or the GPU beside it."""
Verdict = Literal["lit", "transmit", "receive", "either", "unpatched"]
CarrierByNic = Mapping[Nic, bool]
"""The carrier of each NIC of the lab: True if the NIC reports that it receives light."""


@dataclass(frozen=True, slots=True)
class SwitchReading:
    """State and power readings of one switch; a port without a monitor has power None."""

    snapshot: Snapshot
    power_by_port: Mapping[int, Power | None]


@dataclass(frozen=True, slots=True)
class PowerBudget:
    """Expected power of a circuit in dBm at the switch's input, at its output and at the receiver."""

    input_dbm: float
    output_dbm: float
    receiver_dbm: float


def compute_budget(lab: Lab, circuit: Circuit) -> PowerBudget:
    """Return the expected power along a circuit: the transmit power of the lab file minus the losses on the way."""
    input_dbm = lab.link.transmit_power_dbm - lab.get_nic(circuit.link.source).transmit.loss_db
    output_dbm = input_dbm - lab.get_switch(circuit.switch).insertion_loss_db
    return PowerBudget(input_dbm, output_dbm, output_dbm - lab.get_nic(circuit.link.target).receive.loss_db)


def read_light(
    circuits: Iterable[Circuit], switches: Mapping[str, OpticalSwitch]
) -> dict[str, SwitchReading]:
    """Read every switch: its configuration, then the power at every port that a circuit uses."""
    return read_ports(list_used_ports(circuits), switches)


def read_ports(
    ports: Collection[tuple[str, int]], switches: Mapping[str, OpticalSwitch]
) -> dict[str, SwitchReading]:
    """Read every switch: its configuration, then the power at these ports, given as pairs of switch and number."""
    readings = {}
    for name, switch in switches.items():
        switch_ports = sorted({port for switch_name, port in ports if switch_name == name})
        snapshot = switch.read()
        power = switch.power(switch_ports) if switch_ports and switch.capabilities.power_monitor else {}
        readings[name] = SwitchReading(snapshot, power)
    return readings


def find_held_circuits(lab: Lab, snapshots: Mapping[str, Snapshot]) -> tuple[Circuit, ...]:
    """Return the circuits that switches hold between NICs of the lab's hosts."""
    nics = [Nic(node, index) for node, host in enumerate(lab.hosts) for index in range(len(host.nics))]
    nic_by_transmitter = {
        (lab.get_nic(nic).transmit.switch, lab.get_nic(nic).transmit.port): nic for nic in nics
    }
    nic_by_receiver = {(lab.get_nic(nic).receive.switch, lab.get_nic(nic).receive.port): nic for nic in nics}
    return tuple(
        Circuit(
            Link(nic_by_transmitter[name, input_port], nic_by_receiver[name, output_port]),
            name,
            input_port,
            output_port,
        )
        for name, snapshot in snapshots.items()
        for input_port, output_port in sorted(snapshot.connections.pairs)
        if (name, input_port) in nic_by_transmitter and (name, output_port) in nic_by_receiver
    )


def judge_circuits(
    lab: Lab,
    circuits: Collection[Circuit],
    readings: Mapping[str, SwitchReading],
    silent_nics: Collection[Nic] = (),
    explained_subjects: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> tuple[LinkFinding, ...]:
    """Return findings about circuits that are missing or extra, and about light that is missing or weak.

    Other findings cover switches without a reading, the light of `silent_nics`, and the subjects in
    `explained_subjects` (by kind), so these are skipped. More than five circuits of one switch, or all of its planned
    circuits, become one finding.
    """
    findings: list[LinkFinding] = []
    for name, reading in readings.items():
        planned_circuits = tuple(circuit for circuit in circuits if circuit.switch == name)
        missing_findings, extra_findings = (
            [
                finding
                for finding in kind_findings
                if finding.subject not in explained_subjects.get(finding.kind, ())
            ]
            for kind_findings in (
                _judge_missing(lab, reading, planned_circuits),
                _judge_extra(lab, name, reading, planned_circuits),
            )
        )
        is_all_missing = 1 < len(missing_findings) == len(planned_circuits)
        findings += (
            _merge_findings(MISSING_CIRCUIT, name, missing_findings)
            if is_all_missing or len(missing_findings) > MAX_SHOWN
            else missing_findings
        )
        findings += (
            _merge_findings(EXTRA_CIRCUIT, name, extra_findings)
            if len(extra_findings) > MAX_SHOWN
            else extra_findings
        )
        for circuit in planned_circuits:
            if circuit.link.source not in silent_nics:
                findings += _judge_light(lab, circuit, reading)
    return tuple(findings)


def _judge_missing(
    lab: Lab, reading: SwitchReading, planned_circuits: Iterable[Circuit]
) -> Iterator[LinkFinding]:
    for circuit in planned_circuits:
        if not _is_held(circuit, reading):
            detail = _describe_missing(circuit, reading.snapshot)
            yield MISSING_CIRCUIT.report(lab.link_label(circuit.link), detail)


def _merge_findings(kind: FindingKind, switch: str, findings: list[LinkFinding]) -> list[LinkFinding]:
    """Return one finding for many of one kind at one switch. The switch was probably reset, or used by others."""
    subjects = tuple(finding.subject for finding in findings)
    problem = "planned circuits are missing" if kind is MISSING_CIRCUIT else "circuits are not planned"
    detail = f"{len(subjects)} {problem} at {switch}: {list_some(subjects)}; run `testbed apply`"
    return [kind.report(switch, detail, parts=subjects)]


def _judge_light(lab: Lab, circuit: Circuit, reading: SwitchReading) -> Iterator[LinkFinding]:
    budget = compute_budget(lab, circuit)
    input_power = reading.power_by_port.get(circuit.input_port)
    yield from _judge_input(lab, circuit, input_power, budget)
    if _is_held(circuit, reading) and not _is_dark(input_power):
        output_power = reading.power_by_port.get(circuit.output_port)
        yield from _judge_output(lab, circuit, input_power, output_power, budget)


def _is_held(circuit: Circuit, reading: SwitchReading) -> bool:
    return reading.snapshot.connections.get(circuit.input_port) == circuit.output_port


def is_circuit_dark(circuit: Circuit, reading: SwitchReading) -> bool:
    """Return whether the switch itself explains a dark receiver: it holds no circuit, or a monitor sees no light."""
    if not _is_held(circuit, reading):
        return True
    monitors = (reading.power_by_port.get(port) for port in (circuit.input_port, circuit.output_port))
    return any(_is_dark(power) for power in monitors)


def _describe_missing(circuit: Circuit, snapshot: Snapshot) -> str:
    """Return the detail of a `missing_circuit` finding, with the circuits that hold its ports."""
    held_output = snapshot.connections.get(circuit.input_port)
    held_input = snapshot.connections.inputs_by_output.get(circuit.output_port)
    detail = f"{circuit.switch} does not connect {circuit.input_port} -> {circuit.output_port}"
    if held_output is not None:
        detail += f"; input {circuit.input_port} goes to output {held_output}"
    if held_input is not None:
        detail += f"; output {circuit.output_port} is fed by input {held_input}"
    return detail + "; run `testbed apply`"


def _judge_input(
    lab: Lab, circuit: Circuit, input_power: Power | None, budget: PowerBudget
) -> Iterator[LinkFinding]:
    if input_power is None:
        return
    nic_label, port_label = (
        lab.nic_label(circuit.link.source),
        f"input {circuit.input_port} of {circuit.switch}",
    )
    if input_power.below_floor:
        detail = f"no light enters {port_label}: {nic_label} does not send, or its transmit fibre is cut"
        yield NO_LIGHT.report(lab.link_label(circuit.link), detail)
    elif budget.input_dbm - input_power.dbm > TOLERANCE_DB:
        subject = f"the transmit fibre from {nic_label} to {port_label}"
        yield _report_excess_loss(
            lab, circuit, subject, budget.input_dbm - input_power.dbm, input_power.dbm, budget.input_dbm
        )


def _judge_output(
    lab: Lab, circuit: Circuit, input_power: Power | None, output_power: Power | None, budget: PowerBudget
) -> Iterator[LinkFinding]:
    if output_power is None:
        return
    pair = f"{circuit.input_port} -> {circuit.output_port} of {circuit.switch}"
    if output_power.below_floor:
        detail = f"no light leaves output {circuit.output_port}: the cross-connect {pair} passes none"
        yield NO_LIGHT.report(lab.link_label(circuit.link), detail)
        return
    # The transmit fibre causes the loss at the input, which has its own finding.
    expected_dbm = budget.output_dbm - (budget.input_dbm - input_power.dbm if input_power else 0.0)
    if expected_dbm - output_power.dbm > TOLERANCE_DB:
        subject = "the cross-connect" if input_power else "the transmit fibre or the cross-connect"
        yield _report_excess_loss(
            lab, circuit, f"{subject} {pair}", expected_dbm - output_power.dbm, output_power.dbm, expected_dbm
        )


def _report_excess_loss(
    lab: Lab, circuit: Circuit, subject: str, excess_db: float, measured_dbm: float, expected_dbm: float
) -> LinkFinding:
    detail = f"{subject} loses {excess_db:.1f} dB more than planned ({measured_dbm:.1f} dBm, not {expected_dbm:.1f})"
    return EXCESS_LOSS.report(lab.link_label(circuit.link), detail)


def _judge_extra(
    lab: Lab, switch: str, reading: SwitchReading, planned_circuits: Iterable[Circuit]
) -> Iterator[LinkFinding]:
    """Yield findings about unplanned cross-connects at ports of the lab's hosts. Other ports have other users.

    Circuits between boards and NICs that the plan leaves free are expected.
    """
    owner_by_port, lab_ports = find_port_owners(lab), list_lab_ports(lab)
    planned_circuits = tuple(planned_circuits)
    planned_pairs = {(circuit.input_port, circuit.output_port) for circuit in planned_circuits}
    circuits_by_switch = {switch: reading.snapshot.connections}
    board_pairs = {
        circuit[1:]
        for circuit in find_free_circuits(lab, circuits_by_switch, list_used_ports(planned_circuits))
    }
    for pair in sorted(reading.snapshot.connections.pairs - planned_pairs - board_pairs):
        if any((switch, port) in lab_ports for port in pair):
            detail = f"{switch} connects {pair[0]} -> {pair[1]}, which is not planned; run `testbed apply`"
            yield EXTRA_CIRCUIT.report(label_pair(owner_by_port, switch, pair), detail)


@dataclass(frozen=True, slots=True)
class Loss:
    """A lost fibre: the NIC at its end, the part that the NIC lost (`lost_part`), and the link that used it.

    Without a monitor, it is unknown which fibre of a link is lost. Both are then reported, with `is_certain` False.
    `lost_part` is `gpu` if both fibres are intact, but the GPU that the NIC serves has failed.
    """

    nic: Nic
    lost_part: LostPart
    link: Link
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class LossObservation:
    """One observation of a lab: lost fibres, links that carry data, and circuits that are missing or pass no light.

    `held_links` contains all links that the switches hold between the lab's NICs. `snapshots` holds the switches'
    snapshots.
    """

    losses: tuple[Loss, ...]
    carrying_links: frozenset[Link]
    held_links: frozenset[Link]
    unpatched_circuits: tuple[Circuit, ...]
    snapshots: Mapping[str, Snapshot]


def observe_losses(
    lab: Lab, circuits: Iterable[Circuit], switches: Mapping[str, OpticalSwitch], fleet: Fleet | None
) -> LossObservation:
    """Read hosts and switches and return the losses. Without a fleet (modelled hosts), no receive fibre is lost.

    Links of hosts that a partial fleet does not reach, and circuits of switches not in `switches`, are not judged.
    Raises the drivers' errors and `HostError`.
    """
    carriers = read_carriers(fleet, lab) if fleet else {}
    # Read light last: if a transmit fibre is cut between the reads, the monitor shows it and overrules the carrier.
    readings = read_ports(list_lab_ports(lab), switches)
    held_circuits = find_held_circuits(lab, {name: reading.snapshot for name, reading in readings.items()})
    readable_planned, readable_held = (
        _select_readable(lab, circuit_group, readings, fleet) for circuit_group in (circuits, held_circuits)
    )
    return judge_losses(readable_planned, readable_held, readings, carriers)


def _select_readable(
    lab: Lab, circuits: Iterable[Circuit], readings: Mapping[str, SwitchReading], fleet: Fleet | None
) -> tuple[Circuit, ...]:
    """Return the circuits whose switch was read and whose two hosts answer: a host that is off sends no light."""
    reachable_hosts = {host.name for host in fleet.hosts} if fleet else {host.name for host in lab.hosts}
    return tuple(
        circuit
        for circuit in circuits
        if circuit.switch in readings
        and reachable_hosts.issuperset(lab.hosts[nic.node].name for nic in circuit.link)
    )


def read_carriers(fleet: Fleet, lab: Lab) -> dict[Nic, bool]:
    """Return whether each NIC of the reached hosts has carrier, as its kernel reports. Raises `HostError`."""
    results = fleet.run({host.name: _make_carrier_command(host) for host in fleet.hosts})
    carrier_by_nic: dict[Nic, bool] = {}
    for node, host in enumerate(lab.hosts):
        if host.name not in results:
            continue
        carrier_flags = results[host.name].stdout.split()
        if len(carrier_flags) != len(host.nics):
            reason = results[host.name].stderr.strip() or "no answer"
            problem = f"the carriers of {host.name} cannot be read ({reason})"
            raise HostError(f"{problem}; does it have the NICs of the lab file?", host=host.name)
        carrier_by_nic |= {Nic(node, index): flag == "1" for index, flag in enumerate(carrier_flags)}
    return carrier_by_nic


def _make_carrier_command(host: LabHost) -> str:
    """Return a shell command that prints 0 or 1 for each NIC. For an interface that is down, the command prints 0."""
    paths = shlex.join(f"/sys/class/net/{nic.name}" for nic in host.nics)
    return f"for nic in {paths}; do test -d $nic && {{ cat $nic/carrier 2>/dev/null || echo 0; }}; done; true"


def judge_losses(
    planned_circuits: tuple[Circuit, ...],
    held_circuits: tuple[Circuit, ...],
    readings: Mapping[str, SwitchReading],
    carriers: CarrierByNic,
) -> LossObservation:
    """Return the losses that readings and carriers show on planned and on held circuits.

    A NIC whose receiver is dark does not send. Its own link then carries nothing, but is not lost.
    """
    circuits = tuple(dict.fromkeys((*planned_circuits, *held_circuits)))
    verdict_by_circuit = {
        circuit: _judge_circuit(circuit, readings[circuit.switch], carriers) for circuit in circuits
    }
    lit_nics = {circuit.link.target for circuit in held_circuits if verdict_by_circuit[circuit] == "lit"}
    dark_nics = {circuit.link.target for circuit in circuits} - lit_nics
    return LossObservation(
        losses=tuple(
            loss
            for circuit, verdict in verdict_by_circuit.items()
            for loss in _make_losses(circuit.link, verdict)
        ),
        carrying_links=frozenset(
            circuit.link
            for circuit in held_circuits
            if verdict_by_circuit[circuit] == "lit" and circuit.link.source not in dark_nics
        ),
        held_links=frozenset(circuit.link for circuit in held_circuits),
        unpatched_circuits=tuple(
            circuit for circuit in planned_circuits if verdict_by_circuit[circuit] == "unpatched"
        ),
        snapshots={name: reading.snapshot for name, reading in readings.items()},
    )


def _make_losses(link: Link, verdict: Verdict) -> tuple[Loss, ...]:
    transmit, receive = Loss(link.source, "transmit", link), Loss(link.target, "receive", link)
    if verdict == "either":
        return replace(transmit, is_certain=False), replace(receive, is_certain=False)
    return {"transmit": (transmit,), "receive": (receive,)}.get(verdict, ())


def _judge_circuit(circuit: Circuit, reading: SwitchReading, carriers: CarrierByNic) -> Verdict:
    input_power, output_power = (
        reading.power_by_port.get(port) for port in (circuit.input_port, circuit.output_port)
    )
    if _is_dark(input_power):
        return "transmit"
    if reading.snapshot.connections.get(circuit.input_port) != circuit.output_port:
        return "unpatched"
    if _is_dark(output_power):
        return "unpatched" if input_power else "transmit"
    if carriers.get(circuit.link.target, True):
        return "lit"
    return "receive" if input_power or output_power else "either"


def _is_dark(power: Power | None) -> bool:
    return power is not None and power.below_floor
