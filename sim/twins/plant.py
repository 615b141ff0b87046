"""The light of a whole simulated lab: lasers, fibres, and the circuits that pass light through each switch.

Switch twins report the circuits that pass light (`update_switch`), and request the readings of their power monitors.
Whenever a receiver starts or stops receiving light from a transmitter, the plant calls its renderers, such as the
kernel redirects between hosts. Power readings and forwarded packets therefore follow from the same state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sim.models.light import DARK_FLOOR_DBM, Attenuator, attenuate_dbm
from sim.twins.fibre import DEFAULT_FIBRE_LOSS_DB, Fibre, FibreError, FibrePlant, list_fibres
from sim.twins.wire.control import Reply, Request, Verb, VerbError

DEFAULT_TRANSMIT_POWER_DBM = 0.0
DEFAULT_RECEIVE_FLOOR_DBM = -20.0
DEFAULT_INSERTION_LOSS_DB = 1.2

_NO_ATTENUATION = Attenuator()


class Renderer(Protocol):
    """Something that follows the light, such as the forwarding of packets between hosts."""

    def render(self, light_before: Mapping[str, str], light_after: Mapping[str, str]) -> None:
        """Apply the change of light from `light_before` to `light_after`, and return when it is complete.

        Each argument maps every lit receiver to its transmitter (`"b/nic1" -> "a/nic1"`). The plant calls this method
        synchronously, once for each change.
        """
        ...


@dataclass(frozen=True, slots=True)
class LightPath:
    """The path of light from one NIC to another through one switch.

    `power_dbm` is the power at the receiver, after the total loss `loss_db`. `is_received` is True if this power is
    sufficient for the receiver.
    """

    transmitter: str
    receiver: str
    switch: str
    input_port: int
    output_port: int
    power_dbm: float
    loss_db: float
    is_received: bool


@dataclass(frozen=True, slots=True)
class _LitCircuits:
    """Circuits of one switch that pass light: the input of each lit output, and attenuators by output."""

    input_by_output: Mapping[int, int]
    attenuators: Mapping[int, Attenuator]


_NO_CIRCUITS = _LitCircuits({}, {})


class Plant:
    """The light of a lab described by a wiring document (`sim/lab/wiring.schema.json`).

    If the document has no hosts (a stand-alone twin), every switch input gets light over a fibre with the default loss,
    so that its power monitors have light to measure. Raise `FibreError` if two fibres share a port.
    """

    def __init__(self, wiring: Mapping[str, Any], renderers: Sequence[Renderer] = ()) -> None:
        link = wiring.get("link", {})
        self.transmit_power_dbm = float(link.get("transmit_power_dbm", DEFAULT_TRANSMIT_POWER_DBM))
        self._receive_floor_dbm = float(link.get("receive_floor_dbm", DEFAULT_RECEIVE_FLOOR_DBM))
        self._insertion_loss_db = {
            switch["name"]: float(switch.get("insertion_loss_db", DEFAULT_INSERTION_LOSS_DB))
            for switch in wiring.get("switches", ())
        }
        self._has_no_hosts = not wiring.get("hosts")
        self._fibres = FibrePlant({fibre.name: fibre for fibre in list_fibres(wiring)})
        self._lit_circuits: dict[str, _LitCircuits] = {}
        self._renderers = tuple(renderers)
        self._rendered_light: dict[str, str] = {}

    def update_switch(
        self,
        switch: str,
        output_by_input: Mapping[int, int],
        attenuators: Mapping[int, Attenuator] | None = None,
    ) -> None:
        """Set the circuits of a switch that pass light, and wait until all renderers have applied the change.

        `output_by_input` has the circuits that pass light, and `attenuators` maps outputs to attenuators.
        """
        self._lit_circuits[switch] = _LitCircuits(
            {output: input_port for input_port, output in output_by_input.items()}, dict(attenuators or {})
        )
        self._render()

    def read_input_power_dbm(self, switch: str, port: int) -> float:
        """Return the reading of the power monitor of an input in dBm."""
        return max(self._compute_input_dbm(switch, port), DARK_FLOOR_DBM)

    def read_output_power_dbm(self, switch: str, port: int) -> float:
        """Return the reading of the power monitor of an output in dBm, after cross-connect and attenuator."""
        return max(self._compute_output_dbm(switch, port), DARK_FLOOR_DBM)

    def read_transmit_dbm(self, nic: str) -> float:
        """Return the power of a NIC's laser in dBm, or minus infinity if it is off. Raise `FibreError` if unknown."""
        self._fibres.check_nic(nic)
        return -math.inf if nic in self._fibres.dark_lasers else self.transmit_power_dbm

    def read_receive_dbm(self, nic: str) -> float:
        """Return the power at a NIC's receiver in dBm, or minus infinity if dark. Raise `FibreError` if unknown."""
        path = self._find_light_path(self._fibres.find_fibre(f"{nic}:receive"))
        return path.power_dbm if path and path.power_dbm > DARK_FLOOR_DBM else -math.inf

    def list_light_paths(self) -> tuple[LightPath, ...]:
        """Return the light path of every receiver that is connected to a transmitter, in the order of the document."""
        paths = (
            self._find_light_path(fibre)
            for fibre in self._fibres.fibres.values()
            if fibre.direction == "receive"
        )
        return tuple(path for path in paths if path)

    def cut_fibre(self, fibre: str) -> None:
        """Cut a fibre. This and the methods below raise `FibreError` for an unknown fibre or NIC."""
        self._fibres.cut_fibres.add(self._fibres.find_fibre(fibre).name)
        self._render()

    def splice_fibre(self, fibre: str) -> None:
        """Splice a cut fibre."""
        self._fibres.cut_fibres.discard(self._fibres.find_fibre(fibre).name)
        self._render()

    def set_extra_loss(self, fibre: str, loss_db: float) -> None:
        """Set an additional loss of a fibre, like that of a dirty connector. A loss of 0 dB removes it."""
        self._fibres.extra_loss_db[self._fibres.find_fibre(fibre).name] = loss_db
        self._render()

    def swap_fibres(self, first_name: str, second_name: str) -> None:
        """Exchange the switch ends of two fibres of one direction."""
        self._fibres.swap_fibres(first_name, second_name)
        self._render()

    def unswap_fibres(self, fibre: str | None = None) -> None:
        """Undo the exchange of one fibre, or all exchanges."""
        self._fibres.unswap_fibres(fibre)
        self._render()

    def set_laser(self, nic: str, *, is_on: bool) -> None:
        """Turn the laser of a NIC on or off."""
        self._fibres.check_nic(nic)
        (self._fibres.dark_lasers.discard if is_on else self._fibres.dark_lasers.add)(nic)
        self._render()

    def update_interfaces(self, is_up_by_nic: Mapping[str, bool]) -> None:
        """Set which NICs are up. A NIC that its host has set down sends no light."""
        for nic, is_up in is_up_by_nic.items():
            self._fibres.check_nic(nic)
            (self._fibres.down_interfaces.discard if is_up else self._fibres.down_interfaces.add)(nic)
        self._render()

    def describe_fibres(self) -> dict[str, dict[str, Any]]:
        """Return the switch port in which each fibre ends, and whether the fibre is cut, as JSON values."""
        port_by_fibre = {
            name: self._fibres.find_switch_port(fibre) for name, fibre in self._fibres.fibres.items()
        }
        return {
            name: {"switch": switch, "port": port, "cut": name in self._fibres.cut_fibres}
            for name, (switch, port) in port_by_fibre.items()
        }

    def list_faults(self) -> dict[str, Any]:
        """Return all current faults as JSON values."""
        return {
            "cut": sorted(self._fibres.cut_fibres),
            "extra_loss_db": {name: db for name, db in self._fibres.extra_loss_db.items() if db},
            "swapped": sorted([a, b] for a, b in self._fibres.partner_by_fibre.items() if a < b),
            "lasers_off": sorted(self._fibres.dark_lasers),
        }

    def _compute_input_dbm(self, switch: str, port: int) -> float:
        if self._has_no_hosts:
            return attenuate_dbm(self.transmit_power_dbm, [DEFAULT_FIBRE_LOSS_DB], -math.inf)
        fibre = self._fibres.find_fibre_at_port(switch, port)
        if fibre is None or fibre.direction != "transmit" or not self._fibres.sends_light(fibre.nic):
            return -math.inf
        return attenuate_dbm(self.transmit_power_dbm, [self._fibres.compute_loss_db(fibre)], -math.inf)

    def _compute_output_dbm(self, switch: str, output: int) -> float:
        circuits = self._lit_circuits.get(switch, _NO_CIRCUITS)
        input_port = circuits.input_by_output.get(output)
        if input_port is None:
            return -math.inf
        insertion_loss_db = self._insertion_loss_db.get(switch, DEFAULT_INSERTION_LOSS_DB)
        attenuator = circuits.attenuators.get(output, _NO_ATTENUATION)
        return attenuator.compute_output_dbm(self._compute_input_dbm(switch, input_port) - insertion_loss_db)

    def _find_light_path(self, receive_fibre: Fibre) -> LightPath | None:
        switch, output = self._fibres.find_switch_port(receive_fibre)
        input_port = self._lit_circuits.get(switch, _NO_CIRCUITS).input_by_output.get(output)
        transmit_fibre = (
            self._fibres.find_fibre_at_port(switch, input_port) if input_port is not None else None
        )
        if input_port is None or transmit_fibre is None or transmit_fibre.direction != "transmit":
            return None
        received_dbm = attenuate_dbm(
            self._compute_output_dbm(switch, output), [self._fibres.compute_loss_db(receive_fibre)], -math.inf
        )
        power_dbm = max(received_dbm, DARK_FLOOR_DBM)
        return LightPath(
            transmitter=transmit_fibre.nic,
            receiver=receive_fibre.nic,
            switch=switch,
            input_port=input_port,
            output_port=output,
            power_dbm=power_dbm,
            loss_db=self.transmit_power_dbm - power_dbm,
            is_received=received_dbm >= self._receive_floor_dbm,
        )

    def _render(self) -> None:
        light_before = self._rendered_light
        light_after = {
            path.receiver: path.transmitter for path in self.list_light_paths() if path.is_received
        }
        if light_after == light_before:
            return
        for renderer in self._renderers:
            renderer.render(dict(light_before), dict(light_after))
        self._rendered_light = light_after


def make_plant_verbs(plant: Plant) -> Mapping[str, Verb]:
    """Return the verbs of the plant's control socket: cut, uncut, loss, swap, unswap, laser, truth, fibres."""
    return {
        "cut": lambda request: _apply_change(lambda: plant.cut_fibre(request.get_text("fibre"))),
        "uncut": lambda request: _apply_change(lambda: plant.splice_fibre(request.get_text("fibre"))),
        "loss": lambda request: _apply_change(
            lambda: plant.set_extra_loss(request.get_text("fibre"), request.get_number("loss_db"))
        ),
        "swap": lambda request: _apply_change(lambda: plant.swap_fibres(*_parse_two_fibres(request))),
        "unswap": lambda request: _apply_change(
            lambda: plant.unswap_fibres(request.get_text("fibre") if "fibre" in request else None)
        ),
        "laser": lambda request: _apply_change(
            lambda: plant.set_laser(request.get_text("nic"), is_on=request.get_flag("on", default=True))
        ),
        "truth": lambda _: _read_truth(plant),
        "fibres": lambda _: {"simulated": True, "fibres": plant.describe_fibres()},
    }


def _apply_change(make_change: Callable[[], None]) -> Reply:
    try:
        make_change()
    except FibreError as error:
        raise VerbError(str(error)) from None
    return {}


def _parse_two_fibres(request: Request) -> tuple[str, str]:
    fibres = request["fibres"]
    if not isinstance(fibres, list) or len(fibres) != 2 or not all(isinstance(name, str) for name in fibres):
        raise VerbError(f"field 'fibres' must name two fibres, not {fibres!r}")
    return fibres[0], fibres[1]


def _read_truth(plant: Plant) -> Reply:
    paths = [
        {
            "transmitter": path.transmitter,
            "receiver": path.receiver,
            "switch": path.switch,
            "input": path.input_port,
            "output": path.output_port,
            "power_dbm": round(path.power_dbm, 3),
            "loss_db": round(path.loss_db, 3),
            "arrives": path.is_received,
        }
        for path in plant.list_light_paths()
    ]
    return {"simulated": True, "paths": paths, "faults": plant.list_faults()}
