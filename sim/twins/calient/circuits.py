"""What a Calient keeps of each circuit: provisioned first, active later, one way or two.

Provisioning only books the ports; activating moves mirrors. The book follows the matrix: what somebody made
there without a word here (another operator) appears as a one-way circuit, and what he took away is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.twins.calient.names import Names
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.matrix import Pair, Reason, Refused


@dataclass(slots=True)
class Circuit:
    """From the fibre in of port `source` to the fibre out of port `target`, and back when `two_way`."""

    source: int
    target: int
    two_way: bool
    group: str = "SYSTEM"
    active: bool = False

    def ends(self) -> list[tuple[int, int]]:
        """(port in, port out) of each direction."""
        there = [(self.source, self.target)]
        return [*there, (self.target, self.source)] if self.two_way else there


class CircuitBook:
    """All circuits of one switch. Every method raises `Refused` when the switch would not do it."""

    def __init__(self, device: SwitchDevice) -> None:
        self.names = Names(device.matrix.inputs)
        self.skipped_activations = 0
        self._device = device
        self._circuits: list[Circuit] = []

    def circuits(self) -> list[Circuit]:
        """All circuits, in the order of their making."""
        held = set(self._device.matrix.connections.items())
        self._circuits = [c for c in self._circuits if not c.active or set(self.pairs(c)) <= held]
        known = {pair for circuit in self._circuits if circuit.active for pair in self.pairs(circuit)}
        for source, output in sorted(held - known):
            self._circuits.append(Circuit(source, output - self.names.ports, two_way=False, active=True))
        return list(self._circuits)

    def name(self, circuit: Circuit) -> str:
        """`a>b` for one way, `a-b` for two."""
        mark = "-" if circuit.two_way else ">"
        return f"{self.names.name(circuit.source)}{mark}{self.names.name(circuit.target)}"

    def pairs(self, circuit: Circuit) -> list[Pair]:
        """The cross-connects of a circuit, by the numbers of the matrix."""
        return [(port_in, self.names.ports + port_out) for port_in, port_out in circuit.ends()]

    def find(self, name: str) -> Circuit:
        """The circuit of a name."""
        for circuit in self.circuits():
            if self.name(circuit) == name.strip():
                return circuit
        raise Refused(Reason.NOT_CONNECTED, 0)

    def provision(self, source: int, target: int, *, two_way: bool, group: str) -> Circuit:
        """Book the ports."""
        circuit = Circuit(source, target, two_way, group or "SYSTEM")
        pairs = self.pairs(circuit)
        for other in self.circuits():
            for port_in, output in self.pairs(other):
                if any(port_in == pair[0] or output == pair[1] for pair in pairs):
                    raise Refused(Reason.OCCUPIED, port_in)
        self._device.matrix.added([pair[0] for pair in pairs], [pair[1] for pair in pairs])  # or refuses
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
        after = self._device.matrix.added([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        circuit.active = True
        self._device.change(after)
        circuit.active = set(pairs) <= set(self._device.matrix.connections.items())

    def deactivate(self, circuit: Circuit) -> None:
        """Let the mirrors go; the ports stay booked."""
        if circuit.active:
            after = self._device.matrix.without([pair[0] for pair in self.pairs(circuit)])
            circuit.active = False
            self._device.change(after)

    def delete(self, circuit: Circuit) -> None:
        """Forget the circuit, deactivated first when it is active."""
        self.deactivate(circuit)
        self._circuits.remove(circuit)

    # -- what is told of them

    def states(self, circuit: Circuit) -> tuple[str, str, str]:
        """Administrative state, operational state, operational capability.

        Provisioned: `UMA`, `RDY`; moving: `IS`, `RDY`; made: `IS`, `IS`. Capability `FAIL` is a made circuit
        without light.
        """
        if not circuit.active:
            return "UMA", "RDY", "OK"
        if any(self._device.is_moving(pair[0]) for pair in self.pairs(circuit)):
            return "IS", "RDY", "OK"
        lit = self._device.lit
        is_lit = all(lit.get(source) == output for source, output in self.pairs(circuit))
        return "IS", "IS", "OK" if is_lit else "FAIL"
