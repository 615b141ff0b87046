"""Power at the receivers of hosts, by their own modules, beside the budget of the lab file and the module's window."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ocs_drivers.model import Power
from testbed.design.model import Link
from testbed.lab.model import Lab
from testbed.operate.light import TOLERANCE_DB, Budget, SwitchReading, budget_of
from testbed.operate.model import Circuit, LinkFinding

RESOLUTION_DB = 0.05
"""Readings of modules are in steps of 0.1 uW; a planted loss of 1 dB reads a little less."""


@dataclass(frozen=True, slots=True)
class ReceivedPower:
    """Power at one receiver: the weakest lane in dBm, None where the module reports none; and the module's window."""

    dbm: float | None
    lowest_dbm: float | None = None
    highest_dbm: float | None = None


ReceivedPowers = Mapping[tuple[str, str], ReceivedPower]
"""Power by host and NIC; NICs that were not asked are not in it."""


def judge_receivers(
    lab: Lab,
    circuits: Iterable[Circuit],
    readings: Mapping[str, SwitchReading],
    received: ReceivedPowers,
    dark: Collection[Link] = (),
) -> Iterator[LinkFinding]:
    """Yield receive fibres that lose too much and receivers outside their window; nothing of `dark` links. Pure."""
    for circuit in circuits:
        nic = circuit.link.target
        found = received.get((lab.hosts[nic.node].name, lab.nic(nic).name))
        if found is None or circuit.link in dark or circuit.switch not in readings:
            continue
        if found.dbm is None:
            detail = f"the module of {lab.nic_label(nic)} does not report its received power"
            yield LinkFinding("no_module_readings", lab.nic_label(nic), detail)
        else:
            yield from _judge(lab, circuit, readings[circuit.switch], found, found.dbm)


def _judge(
    lab: Lab, circuit: Circuit, reading: SwitchReading, found: ReceivedPower, dbm: float
) -> Iterator[LinkFinding]:
    subject, receiver = lab.link_label(circuit.link), lab.nic_label(circuit.link.target)
    budget = budget_of(lab, circuit)
    known_db, place = _known_loss(circuit, reading, budget)
    expected_dbm = budget.receiver_dbm - known_db
    outside = _outside(found, dbm)
    if expected_dbm - dbm >= TOLERANCE_DB - RESOLUTION_DB:
        detail = (
            f"{place} to {receiver} loses {expected_dbm - dbm:.1f} dB more than planned "
            f"({dbm:.1f} dBm at the receiver, not {expected_dbm:.1f}){f'; {outside}' if outside else ''}"
        )
        yield LinkFinding("excess_loss", subject, detail)
    elif outside:
        yield LinkFinding("power_out_of_window", subject, f"{receiver} receives {dbm:.1f} dBm: {outside}")


def _known_loss(circuit: Circuit, reading: SwitchReading, budget: Budget) -> tuple[float, str]:
    """Return what the light lacks at the last monitor before the receiver, and what lies behind that monitor."""
    leaving, entering = (_lit(reading.power.get(port)) for port in (circuit.output_port, circuit.input_port))
    if leaving is not None:
        fibre = f"the receive fibre from output {circuit.output_port} of {circuit.switch}"
        return budget.output_dbm - leaving.dbm, fibre
    if entering is not None:
        pair = f"{circuit.input_port} -> {circuit.output_port} of {circuit.switch}"
        return budget.input_dbm - entering.dbm, f"the cross-connect {pair} or the receive fibre"
    return 0.0, f"the way through {circuit.switch}"


def _lit(power: Power | None) -> Power | None:
    return power if power is not None and not power.below_floor else None


def _outside(found: ReceivedPower, dbm: float) -> str:
    if found.lowest_dbm is not None and dbm < found.lowest_dbm:
        return f"less than the {found.lowest_dbm:.1f} dBm that its module needs"
    if found.highest_dbm is not None and dbm > found.highest_dbm:
        return f"more than the {found.highest_dbm:.1f} dBm that its module bears"
    return ""
