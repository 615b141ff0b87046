"""Losses of the glass between two powers that somebody measures: laser, input, output and receiver of each circuit.

    laser --(transmit fibre)--> input --(cross-connect)--> output --(receive fibre)--> receiver

Where nobody measures, two stretches are one; where no module measures the laser, the lab file's power stands for it.
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
    """Loss of one stretch of glass now, and by the lab file; `power_dbm` is that at its end.

    `place` names the stretch in every reading: fibres as `a/nic1:transmit`, cross-connects as `ocs1:1-49`, several
    joined by `+`, and `laser?` first where the power of the laser is the lab file's.
    """

    place: str
    subject: str
    loss_db: float
    intent_db: float
    power_dbm: float

    @property
    def excess_db(self) -> float:
        """Loss beyond that of the lab file."""
        return self.loss_db - self.intent_db


def losses_of(
    lab: Lab, circuits: Iterable[Circuit], switches: Mapping[str, SwitchReading], receivers: Receivers
) -> tuple[StretchLoss, ...]:
    """Return the losses along circuits that are there; what is dark at one of its ends has none. Pure."""
    return tuple(
        loss
        for circuit in circuits
        for loss in _along(lab, circuit, switches[circuit.switch].power, receivers)
    )


def _along(
    lab: Lab, circuit: Circuit, power: Mapping[int, Power | None], receivers: Receivers
) -> Iterator[StretchLoss]:
    source, target = circuit.link.source, circuit.link.target
    glass = (
        (f"{lab.nic_label(source)}:transmit", lab.nic(source).transmit.loss_db),
        (
            f"{circuit.switch}:{circuit.input_port}-{circuit.output_port}",
            lab.switch(circuit.switch).insertion_loss_db,
        ),
        (f"{lab.nic_label(target)}:receive", lab.nic(target).receive.loss_db),
    )
    sender, receiver = (
        receivers.get((lab.hosts[nic.node].name, lab.nic(nic).name)) for nic in (source, target)
    )
    sent_dbm = sender.laser_dbm if sender else None
    is_assumed = sent_dbm is None
    laser_dbm = lab.link.transmit_power_dbm if sent_dbm is None else sent_dbm
    points = (
        _dbm(power.get(circuit.input_port)),
        _dbm(power.get(circuit.output_port)),
        receiver.power_dbm if receiver else None,
    )
    before, from_dbm = 0, laser_dbm
    for at, to_dbm in enumerate(points, start=1):
        if to_dbm is None:
            continue
        names = [name for name, _ in glass[before:at]]
        place = "+".join(["laser?", *names] if before == 0 and is_assumed else names)
        if math.isfinite(from_dbm) and math.isfinite(to_dbm):
            intent_db = math.fsum(loss_db for _, loss_db in glass[before:at])
            yield StretchLoss(place, lab.link_label(circuit.link), from_dbm - to_dbm, intent_db, to_dbm)
        before, from_dbm = at, to_dbm


def _dbm(power: Power | None) -> float | None:
    if power is None:
        return None
    return -math.inf if power.below_floor else power.dbm
