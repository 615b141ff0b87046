"""Losses of fibre sections, between the points of each circuit where the power is known.

    laser --(transmit fibre)--> input --(cross-connect)--> output --(receive fibre)--> receiver

If the power between two sections is not measured, they count as one. If no module measures the laser, the power of the
lab file is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ocs_drivers.model import Power
from testbed.lab.hosts.receivers import ReceiverReading
from testbed.lab.model import Lab
from testbed.operate.light import SwitchReading
from testbed.operate.model import Circuit

Receivers = Mapping[tuple[str, str], ReceiverReading]
"""Readings of modules by host and NIC."""


@dataclass(frozen=True, slots=True)
class StretchLoss:
    """Loss of a stretch, which is one or several neighbouring sections, as measured and as in the lab file.

    `place` identifies the stretch in all readings. It joins fibres (`a/nic1:transmit`) and cross-connects
    (`ocs1:1-49`) by `+`, and starts with `laser?` if the lab file gives the power of the laser. `link_label` is the
    label of the circuit's link. `power_dbm` is the power at the end of the stretch.
    """

    place: str
    link_label: str
    loss_db: float
    intent_db: float
    power_dbm: float

    @property
    def excess_db(self) -> float:
        """The measured loss minus the loss in the lab file."""
        return self.loss_db - self.intent_db


def measure_losses(
    lab: Lab, circuits: Iterable[Circuit], switches: Mapping[str, SwitchReading], receivers: Receivers
) -> tuple[StretchLoss, ...]:
    """Return the losses along circuits that the switches hold. Stretches that are dark at one end are left out."""
    return tuple(
        loss
        for circuit in circuits
        for loss in _measure_circuit(lab, circuit, switches[circuit.switch].power_by_port, receivers)
    )


def _measure_circuit(
    lab: Lab, circuit: Circuit, power: Mapping[int, Power | None], receivers: Receivers
) -> Iterator[StretchLoss]:
    source, target = circuit.link.source, circuit.link.target
    sections = (
        (f"{lab.nic_label(source)}:transmit", lab.get_nic(source).transmit.loss_db),
        (
            f"{circuit.switch}:{circuit.input_port}-{circuit.output_port}",
            lab.get_switch(circuit.switch).insertion_loss_db,
        ),
        (f"{lab.nic_label(target)}:receive", lab.get_nic(target).receive.loss_db),
    )
    sender_reading, receiver_reading = (
        receivers.get((lab.hosts[nic.node].name, lab.get_nic(nic).name)) for nic in (source, target)
    )
    measured_laser_dbm = sender_reading.sent_power_dbm if sender_reading else None
    is_assumed = measured_laser_dbm is None
    laser_dbm = lab.link.transmit_power_dbm if measured_laser_dbm is None else measured_laser_dbm
    point_powers_dbm = (
        _read_dbm(power.get(circuit.input_port)),
        _read_dbm(power.get(circuit.output_port)),
        receiver_reading.power_dbm if receiver_reading else None,
    )
    start_index, from_dbm = 0, laser_dbm
    for end_index, to_dbm in enumerate(point_powers_dbm, start=1):
        # Without a monitor at a point, the sections on both sides form one stretch.
        if to_dbm is None:
            continue
        section_names = [name for name, _ in sections[start_index:end_index]]
        place = "+".join(["laser?", *section_names] if start_index == 0 and is_assumed else section_names)
        if math.isfinite(from_dbm) and math.isfinite(to_dbm):
            intent_db = math.fsum(loss_db for _, loss_db in sections[start_index:end_index])
            yield StretchLoss(place, lab.link_label(circuit.link), from_dbm - to_dbm, intent_db, to_dbm)
        start_index, from_dbm = end_index, to_dbm


def _read_dbm(power: Power | None) -> float | None:
    if power is None:
        return None
    return -math.inf if power.below_floor else power.dbm
