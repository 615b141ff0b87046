"""Light along circuits: what the switch measures at both ends of each, against the loss budget of the lab file.

    transmitter --(transmit fibre)--> input monitor --(cross-connect)--> output monitor --(receive fibre)--> receiver

Losses are differences of readings in dBm; a loss is excessive when it is more than `TOLERANCE_DB` over budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lightbed.wording import SHOWN, list_some
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.model import Power, Snapshot
from testbed.design.model import Link, Nic
from testbed.lab.model import Lab
from testbed.operate.model import Circuit, LinkFinding
from testbed.operate.plan import own_ports, pair_label, port_owners

TOLERANCE_DB = 1.0


@dataclass(frozen=True, slots=True)
class SwitchReading:
    """State and power readings of one switch; a port without a monitor has power None."""

    snapshot: Snapshot
    power: Mapping[int, Power | None]


@dataclass(frozen=True, slots=True)
class Budget:
    """The power that a circuit should have at the input, at the output and at the receiver."""

    input_dbm: float
    output_dbm: float
    receiver_dbm: float


def budget_of(lab: Lab, circuit: Circuit) -> Budget:
    """Return power along one circuit by the lab file: transmit power less fibre, insertion and fibre loss."""
    input_dbm = lab.link.transmit_power_dbm - lab.nic(circuit.link.source).transmit.loss_db
    output_dbm = input_dbm - lab.switch(circuit.switch).insertion_loss_db
    return Budget(input_dbm, output_dbm, output_dbm - lab.nic(circuit.link.target).receive.loss_db)


def read_light(
    circuits: Iterable[Circuit], switches: Mapping[str, OpticalSwitch]
) -> dict[str, SwitchReading]:
    """Read every switch: its configuration, then the power at every port that a circuit uses."""
    ends = ((circuit.switch, (circuit.input_port, circuit.output_port)) for circuit in circuits)
    return read_ports({(switch, port) for switch, pair in ends for port in pair}, switches)


def read_ports(
    ports: Collection[tuple[str, int]], switches: Mapping[str, OpticalSwitch]
) -> dict[str, SwitchReading]:
    """Read every switch: its configuration, then the power at these ports, each named by switch and number."""
    return {
        name: _read_switch(switch, {port for of, port in ports if of == name})
        for name, switch in switches.items()
    }


def _read_switch(switch: OpticalSwitch, ports: set[int]) -> SwitchReading:
    snapshot = switch.read()
    power = switch.power(sorted(ports)) if ports and switch.capabilities.power_monitor else {}
    return SwitchReading(snapshot, power)


def held_circuits(lab: Lab, seen: Mapping[str, Snapshot]) -> tuple[Circuit, ...]:
    """Return what switches hold between NICs of the lab's hosts."""
    nics = [Nic(node, index) for node, host in enumerate(lab.hosts) for index in range(len(host.nics))]
    sends = {(lab.nic(nic).transmit.switch, lab.nic(nic).transmit.port): nic for nic in nics}
    hears = {(lab.nic(nic).receive.switch, lab.nic(nic).receive.port): nic for nic in nics}
    return tuple(
        Circuit(Link(sends[name, here], hears[name, there]), name, here, there)
        for name, snapshot in seen.items()
        for here, there in sorted(snapshot.connections.pairs)
        if (name, here) in sends and (name, there) in hears
    )


def judge_circuits(
    lab: Lab,
    circuits: Collection[Circuit],
    readings: Mapping[str, SwitchReading],
    silent: Collection[Nic] = (),
    explained: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> tuple[LinkFinding, ...]:
    """Return everything that is not as planned: circuits missing or extra, light missing or weak. Pure.

    Circuits of switches without a reading are not judged, nor is the light of `silent` NICs: each has its own finding.
    Subjects of `explained`, by kind, have theirs too. More than five circuits of one switch, or all that are planned
    there, are one finding.
    """
    findings: list[LinkFinding] = []
    for name, reading in readings.items():
        planned = tuple(circuit for circuit in circuits if circuit.switch == name)
        missing, extra = (
            [one for one in of_kind if one.subject not in explained.get(one.kind, ())]
            for of_kind in (_judge_missing(lab, reading, planned), _judge_extra(lab, name, reading, planned))
        )
        is_bare = 1 < len(missing) == len(planned)
        findings += _fold(name, missing) if is_bare or len(missing) > SHOWN else missing
        findings += _fold(name, extra) if len(extra) > SHOWN else extra
        for circuit in planned:
            if circuit.link.source not in silent:
                findings += _judge_light(lab, circuit, reading)
    return tuple(findings)


def _judge_missing(lab: Lab, reading: SwitchReading, planned: Iterable[Circuit]) -> Iterator[LinkFinding]:
    for circuit in planned:
        if not _stands(circuit, reading):
            detail = _missing(circuit, reading.snapshot)
            yield LinkFinding("missing_circuit", lab.link_label(circuit.link), detail)


def _fold(switch: str, findings: list[LinkFinding]) -> list[LinkFinding]:
    """Return findings of one kind about circuits of one switch as one: it was off, or somebody else used it."""
    kind, parts = findings[0].kind, tuple(finding.subject for finding in findings)
    words = "planned circuits are missing" if kind == "missing_circuit" else "circuits are not planned"
    detail = f"{len(parts)} {words} at {switch}: {list_some(parts)}; run `testbed apply`"
    return [LinkFinding(kind, switch, detail, parts=parts)]


def _judge_light(lab: Lab, circuit: Circuit, reading: SwitchReading) -> Iterator[LinkFinding]:
    budget = budget_of(lab, circuit)
    entering = reading.power.get(circuit.input_port)
    yield from _judge_input(lab, circuit, entering, budget)
    if _stands(circuit, reading) and not (entering and entering.below_floor):
        leaving = reading.power.get(circuit.output_port)
        yield from _judge_output(lab, circuit, entering, leaving, budget)


def _stands(circuit: Circuit, reading: SwitchReading) -> bool:
    return reading.snapshot.connections.get(circuit.input_port) == circuit.output_port


def is_dark(circuit: Circuit, reading: SwitchReading) -> bool:
    """Return whether the switch itself explains a dark receiver: no circuit, or a monitor that sees no light."""
    if not _stands(circuit, reading):
        return True
    monitors = (reading.power.get(port) for port in (circuit.input_port, circuit.output_port))
    return any(power is not None and power.below_floor for power in monitors)


def _missing(circuit: Circuit, snapshot: Snapshot) -> str:
    """Say that a planned cross-connect is not there, and what holds its ports instead."""
    held = snapshot.connections.get(circuit.input_port)
    holder = snapshot.connections.inputs_of.get(circuit.output_port)
    text = f"{circuit.switch} does not connect {circuit.input_port} -> {circuit.output_port}"
    if held is not None:
        text += f"; input {circuit.input_port} goes to output {held}"
    if holder is not None:
        text += f"; output {circuit.output_port} is fed by input {holder}"
    return text + "; run `testbed apply`"


def _judge_input(lab: Lab, circuit: Circuit, entering: Power | None, budget: Budget) -> Iterator[LinkFinding]:
    if entering is None:
        return
    nic, place = lab.nic_label(circuit.link.source), f"input {circuit.input_port} of {circuit.switch}"
    if entering.below_floor:
        detail = f"no light enters {place}: {nic} does not send, or its transmit fibre is cut"
        yield LinkFinding("no_light", lab.link_label(circuit.link), detail)
    elif budget.input_dbm - entering.dbm > TOLERANCE_DB:
        what = f"the transmit fibre from {nic} to {place}"
        yield _excess(lab, circuit, what, budget.input_dbm - entering.dbm, entering.dbm, budget.input_dbm)


def _judge_output(
    lab: Lab, circuit: Circuit, entering: Power | None, leaving: Power | None, budget: Budget
) -> Iterator[LinkFinding]:
    if leaving is None:
        return
    pair = f"{circuit.input_port} -> {circuit.output_port} of {circuit.switch}"
    if leaving.below_floor:
        detail = f"no light leaves output {circuit.output_port}: the cross-connect {pair} passes none"
        yield LinkFinding("no_light", lab.link_label(circuit.link), detail)
        return
    # What the input already lacks is the fibre's fault and has been said.
    expected_dbm = budget.output_dbm - (budget.input_dbm - entering.dbm if entering else 0.0)
    if expected_dbm - leaving.dbm > TOLERANCE_DB:
        where = "the cross-connect" if entering else "the transmit fibre or the cross-connect"
        yield _excess(lab, circuit, f"{where} {pair}", expected_dbm - leaving.dbm, leaving.dbm, expected_dbm)


def _excess(
    lab: Lab, circuit: Circuit, what: str, excess_db: float, found_dbm: float, expected_dbm: float
) -> LinkFinding:
    detail = (
        f"{what} loses {excess_db:.1f} dB more than planned ({found_dbm:.1f} dBm, not {expected_dbm:.1f})"
    )
    return LinkFinding("excess_loss", lab.link_label(circuit.link), detail)


def _judge_extra(
    lab: Lab, switch: str, reading: SwitchReading, planned: Iterable[Circuit]
) -> Iterator[LinkFinding]:
    """Yield cross-connects that touch our ports and are not planned; those of other people are theirs."""
    owners, ours = port_owners(lab), own_ports(lab)
    pairs = {(circuit.input_port, circuit.output_port) for circuit in planned}
    for pair in sorted(reading.snapshot.connections.pairs - pairs):
        if any((switch, port) in ours for port in pair):
            detail = f"{switch} connects {pair[0]} -> {pair[1]}, which is not planned; run `testbed apply`"
            yield LinkFinding("extra_circuit", pair_label(owners, switch, pair), detail)
