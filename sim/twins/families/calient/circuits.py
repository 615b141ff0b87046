"""Circuits of a Calient: provisioned first, active later, one way or two.

Provisioning only books the ports; activating moves mirrors. The book follows the matrix: what somebody made
there without a word here (another operator) appears as a one-way circuit, and what he took away is gone, or was
provisioned on ports that he uses.

A port `segment.fibre.port` has a fibre in and a fibre out: the n-th name is input n and output N+n of the matrix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sim.models.light import DARK_FLOOR_DBM
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import Pair, Reason, Refused

_DESCRIPTIONS: Mapping[Reason, str] = {
    Reason.OCCUPIED: "Invalid Connection: port {port} is in use",
    Reason.NOT_CONNECTED: "Invalid Connection: no such connection",
    Reason.NO_SUCH_PORT: "Invalid Port",
}
PORTS_PER_FIBRE = FIBRES_PER_SEGMENT = 8
_NAME = re.compile(r"(\d)\.(\d)\.(\d)")


@dataclass(slots=True)
class Circuit:
    """From the fibre in of port `source` to the fibre out of port `target`, and back when `two_way`."""

    source: int
    target: int
    two_way: bool
    group: str = "SYSTEM"
    active: bool = False

    def ends(self) -> list[tuple[int, int]]:
        """Return (port in, port out) of each direction."""
        there = [(self.source, self.target)]
        return [*there, (self.target, self.source)] if self.two_way else there


class CircuitConfiguration:
    """All circuits of one switch. Every method raises `Refused` when the switch would not do it.

    `moving_states` is what a circuit shows while its mirrors are on their way. `dark` are pairs that find no light.
    """

    def __init__(self, device: SwitchDevice, *, moving_states: tuple[str, str] = ("IS", "RDY")) -> None:
        self.moving_states = moving_states
        self.names = Names(device.matrix.inputs)
        self.skipped_activations = 0
        self.dark: set[Pair] = set()
        self._device = device
        self._circuits: list[Circuit] = []

    def circuits(self) -> list[Circuit]:
        """Return all circuits, in the order of their making."""
        held = set(self._device.matrix.connections.items())
        self._circuits = [c for c in self._circuits if not c.active or set(self.pairs(c)) <= held]
        known = {pair for circuit in self._circuits if circuit.active for pair in self.pairs(circuit)}
        for pair in sorted(held - known):
            self._circuits = [c for c in self._circuits if c.active or not self._share_ports(c, [pair])]
            self._circuits.append(Circuit(pair[0], pair[1] - self.names.ports, two_way=False, active=True))
        return list(self._circuits)

    def on(self, port: int) -> Circuit | None:
        """Return the circuit that holds a port of the matrix."""
        return next((c for c in self.circuits() if any(port in pair for pair in self.pairs(c))), None)

    def forget_provisioned(self) -> None:
        """Lose what is not active, as without power (assumption: only what is lit is restored)."""
        self._circuits = [circuit for circuit in self._circuits if circuit.active]

    def _share_ports(self, circuit: Circuit, pairs: Iterable[Pair]) -> bool:
        held = {port for pair in self.pairs(circuit) for port in pair}
        return any(held.intersection(pair) for pair in pairs)

    def name(self, circuit: Circuit) -> str:
        """Return `a>b` for one way, `a-b` for two."""
        mark = "-" if circuit.two_way else ">"
        return f"{self.names.name(circuit.source)}{mark}{self.names.name(circuit.target)}"

    def pairs(self, circuit: Circuit) -> list[Pair]:
        """Return the cross-connects of a circuit, by the numbers of the matrix."""
        return [(port_in, self.names.ports + port_out) for port_in, port_out in circuit.ends()]

    def find(self, name: str) -> Circuit:
        """Return the circuit of a name."""
        for circuit in self.circuits():
            if self.name(circuit) == name.strip():
                return circuit
        raise Refused(Reason.NOT_CONNECTED, 0)

    def provision(self, source: int, target: int, *, two_way: bool, group: str) -> Circuit:
        """Book the ports."""
        circuit = Circuit(source, target, two_way, group or "SYSTEM")
        pairs = self.pairs(circuit)
        if two_way and source == target:
            raise Refused(Reason.REPEATED, source)
        if any(self._share_ports(other, pairs) for other in self.circuits()):
            raise Refused(Reason.OCCUPIED, source)
        self._device.matrix.add([pair[0] for pair in pairs], [pair[1] for pair in pairs])  # or refuses
        self._circuits.append(circuit)
        return circuit

    def activate(self, circuit: Circuit) -> None:
        """Move the mirrors."""
        if self.skipped_activations:
            self.skipped_activations -= 1
            self._device.faults.fired["skip_activate"] += 1
            return
        if circuit.active:
            return
        pairs = self.pairs(circuit)
        after = self._device.matrix.add([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        if self._device.faults.stuck.intersection(pairs):  # a circuit is made as a whole, or not
            self._device.faults.fired["stuck"] += 1
            return
        circuit.active = True
        self._device.faults.fired["oc_fail"] += len(self.dark.intersection(pairs))
        self._device.change(after)

    def deactivate(self, circuit: Circuit) -> None:
        """Release the mirrors; the ports stay booked."""
        if circuit.active:
            after = self._device.matrix.without([pair[0] for pair in self.pairs(circuit)])
            circuit.active = False
            self._device.change(after)

    def delete(self, circuit: Circuit) -> None:
        """Forget the circuit, deactivated first when it is active."""
        self.deactivate(circuit)
        self._circuits.remove(circuit)

    # -- states and powers

    def states(self, circuit: Circuit, pairs: Iterable[Pair] = ()) -> tuple[str, str, str]:
        """Administrative state, operational state, operational capability; of a circuit, or of `pairs` of it.

        Provisioned: `UMA`, `RDY`; moving: `IS`, `RDY`; made: `IS`, `IS`. Capability `FAIL` is a made circuit
        without light.
        """
        if not circuit.active:
            return "UMA", "RDY", "OK"
        pairs = tuple(pairs) or self.pairs(circuit)
        if any(self._device.is_moving(pair[0]) for pair in pairs):
            return (*self.moving_states, "OK")
        is_lit = all(self.power_dbm(output) is not None for _, output in pairs)
        return "IS", "IS", "OK" if is_lit else "FAIL"

    def fibre_states(self, number: int) -> tuple[str, str, str]:
        """Return the same three of a port of the matrix.

        A port that no circuit holds is `OOS-NP`, `OOS`, `OK`, as in captures; what a failed, locked or disabled port
        shows is an assumption.
        """
        state = self._device.matrix.state(number)
        if state == "F":
            return "IS", "OOS", "FAIL"
        if number in self._device.matrix.locked:
            return "LCK", "IS", "OK"
        if state == "D":
            return "OOS-MA", "OOS", "OK"
        return ("IS", "IS", "OK") if self.on(number) else ("OOS-NP", "OOS", "OK")

    def owner(self, number: int) -> str:
        """Return who uses a port of the matrix: `TRANSIT` for a circuit, `NONE` for nobody."""
        return "TRANSIT" if self.on(number) else "NONE"

    def power_dbm(self, number: int) -> float | None:
        """Return the reading of the monitor of a port of the matrix reads; None where it sees no light."""
        dbm = self._device.power_dbm(number)
        dark = {pair[1] for pair in self.dark if pair in self._device.matrix.connections.items()}
        return None if number in dark or dbm <= DARK_FLOOR_DBM else dbm

    def describe(self, refusal: Refused) -> str:
        """Return the comment that explains a refusal."""
        port = self.names.name((refusal.port - 1) % self.names.ports + 1) if refusal.port else "?"
        return _DESCRIPTIONS.get(refusal.reason, f"Failed: {refusal.reason.value}").format(port=port)

    def label(self, port: int) -> str:
        """Return the label of a port."""
        return self._device.labels.get(port, "")

    # -- faults

    def faults(self) -> dict[str, Fault]:
        """Return faults for the fault board: activations without effect, circuits without light."""
        return {
            "skip_activate": Fault(
                lambda request: setattr(self, "skipped_activations", request.whole("count", 1)),
                lambda _: setattr(self, "skipped_activations", 0),
            ),
            "oc_fail": Fault(
                lambda request: self._darken(request.pair("pair")), lambda _: self.dark.clear(), main="pair"
            ),
        }

    def _darken(self, pair: Pair) -> None:
        for port in pair:
            self._device.matrix.check_port(port)
        self.dark.add(pair)
        self._device.faults.fired["oc_fail"] += pair in self._device.matrix.connections.items()


@dataclass(frozen=True, slots=True)
class Names:
    """All names of a switch with so many ports."""

    ports: int

    def name(self, number: int) -> str:
        """Return the name of the n-th port, counted from 1.

        >>> Names(320).name(1), Names(320).name(9), Names(320).name(65)
        ('1.1.1', '1.2.1', '2.1.1')
        """
        fibres, port = divmod(number - 1, PORTS_PER_FIBRE)
        segment, fibre = divmod(fibres, FIBRES_PER_SEGMENT)
        return f"{segment + 1}.{fibre + 1}.{port + 1}"

    def number(self, name: str) -> int:
        """Return the port of a name. Raises `Refused`."""
        match = _NAME.fullmatch(name.strip())
        if match is None or not all(1 <= int(part) <= 8 for part in match.groups()):
            raise Refused(Reason.NO_SUCH_PORT, 0)
        segment, fibre, port = (int(part) - 1 for part in match.groups())
        number = (segment * FIBRES_PER_SEGMENT + fibre) * PORTS_PER_FIBRE + port + 1
        if number > self.ports:
            raise Refused(Reason.NO_SUCH_PORT, number)
        return number
