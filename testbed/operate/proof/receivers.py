"""Power at the receivers of hosts, by their own modules, beside the budget of the lab file and the module's window."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from lightbed.wording import list_some
from ocs_drivers.model import Power
from testbed.design.model import Link
from testbed.lab.hosts.receivers import ReceiverReading, outside_window
from testbed.lab.model import Lab
from testbed.operate.light import TOLERANCE_DB, Budget, SwitchReading, budget_of
from testbed.operate.model import Circuit, LinkFinding

RESOLUTION_DB = 0.05
"""Readings of modules are in steps of 0.1 uW; a planted loss of 1 dB reads a little less."""


Readings = Mapping[tuple[str, str], ReceiverReading]
"""Readings by host and NIC; NICs that were not asked are not in it."""


def judge_receivers(
    lab: Lab,
    circuits: Iterable[Circuit],
    readings: Mapping[str, SwitchReading],
    received: Readings,
    dark: Collection[Link] = (),
) -> Iterator[LinkFinding]:
    """Yield receive fibres that lose too much and receivers outside their window; nothing of `dark` links. Pure.

    Modules that do not report their power are one finding, which only informs.
    """
    silent: list[tuple[str, str]] = []
    for circuit in circuits:
        nic = circuit.link.target
        found = received.get((lab.hosts[nic.node].name, lab.nic(nic).name))
        if found is None or circuit.link in dark or circuit.switch not in readings:
            continue
        if found.power_dbm is None:
            silent.append((lab.nic_label(nic), found.reason))
        else:
            yield from _judge(lab, circuit, readings[circuit.switch], found, found.power_dbm)
    if silent:
        names = tuple(name for name, _ in silent)
        reasons = "; ".join(sorted({reason for _, reason in silent}))
        yield LinkFinding("no_module_readings", list_some(names), reasons, parts=names)


def _judge(
    lab: Lab, circuit: Circuit, reading: SwitchReading, found: ReceiverReading, dbm: float
) -> Iterator[LinkFinding]:
    subject, receiver = lab.link_label(circuit.link), lab.nic_label(circuit.link.target)
    budget = budget_of(lab, circuit)
    known_db, place = _known_loss(circuit, reading, budget)
    expected_dbm = budget.receiver_dbm - known_db
    outside = outside_window(found)
    if expected_dbm - dbm >= TOLERANCE_DB - RESOLUTION_DB and not (outside and found.has_dark_lane):
        detail = (
            f"{place} to {receiver} loses {expected_dbm - dbm:.1f} dB more than planned "
            f"({dbm:.1f} dBm at the receiver, not {expected_dbm:.1f}){f'; {outside}' if outside else ''}"
        )
        yield LinkFinding("excess_loss", subject, detail)
    elif outside:
        yield LinkFinding("power_out_of_window", subject, f"{receiver}: {outside}")


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
