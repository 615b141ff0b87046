"""Circuits of a Calient switch, one-way or two-way.

A client first provisions a circuit, which reserves the ports, and then activates it, which moves the mirrors.

The list of circuits follows the matrix, which other operators may change. A new connection of the matrix becomes a
one-way circuit, and removes provisioned circuits on its ports. A lost connection removes its active circuit.

A port `segment.fibre.port` has an input and an output fibre: the n-th name is input n and output N+n of the matrix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sim.models.light import DARK_FLOOR_DBM
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import MatrixRefusal, Pair, Reason

_DESCRIPTIONS: Mapping[Reason, str] = {
    Reason.OCCUPIED: "Invalid Connection: port {port} is in use",
    Reason.NOT_CONNECTED: "Invalid Connection: no such connection",
    Reason.NO_SUCH_PORT: "Invalid Port",
}
PORTS_PER_FIBRE = FIBRES_PER_SEGMENT = 8
_PORT_NAME = re.compile(r"(\d)\.(\d)\.(\d)")


@dataclass(slots=True)
class Circuit:
    """A circuit from the input of port `source` to the output of port `target`, and back if `is_two_way`."""

    source: int
    target: int
    is_two_way: bool
    group: str = "SYSTEM"
    is_active: bool = False

    def list_ends(self) -> list[tuple[int, int]]:
        """Return the pair (input port, output port) of each direction."""
        forward = [(self.source, self.target)]
        return [*forward, (self.target, self.source)] if self.is_two_way else forward


class CircuitConfiguration:
    """All circuits of one switch. Methods that change circuits raise `MatrixRefusal` if the switch refuses.

    `moving_states` are the administrative and operational states of a circuit whose mirrors move. `dark` holds the
    pairs that pass no light because of the fault `oc_fail`.
    """

    def __init__(self, device: SwitchDevice, *, moving_states: tuple[str, str] = ("IS", "RDY")) -> None:
        self.moving_states = moving_states
        self.names = PortNames(device.matrix.input_count)
        self.skipped_activations = 0
        self.dark: set[Pair] = set()
        self._device = device
        self._circuits: list[Circuit] = []

    def list_circuits(self) -> list[Circuit]:
        """Update the list of circuits from the matrix, and return all circuits in order of creation."""
        connections = set(self._device.matrix.connections.items())
        self._circuits = [
            entry for entry in self._circuits if not entry.is_active or set(self.pairs(entry)) <= connections
        ]
        active_pairs = {
            pair for circuit in self._circuits if circuit.is_active for pair in self.pairs(circuit)
        }
        for pair in sorted(connections - active_pairs):
            self._circuits = [
                entry for entry in self._circuits if entry.is_active or not self._share_ports(entry, [pair])
            ]
            self._circuits.append(
                Circuit(pair[0], pair[1] - self.names.ports, is_two_way=False, is_active=True)
            )
        return list(self._circuits)

    def find_circuit(self, port: int) -> Circuit | None:
        """Return the circuit that uses a port of the matrix, or None."""
        return next(
            (entry for entry in self.list_circuits() if any(port in pair for pair in self.pairs(entry))), None
        )

    def forget_provisioned(self) -> None:
        """Remove all circuits that are not active. A power loss does this (assumption)."""
        self._circuits = [circuit for circuit in self._circuits if circuit.is_active]

    def _share_ports(self, circuit: Circuit, pairs: Iterable[Pair]) -> bool:
        ports = {port for pair in self.pairs(circuit) for port in pair}
        return any(ports.intersection(pair) for pair in pairs)

    def name(self, circuit: Circuit) -> str:
        """Return the name of a circuit: `a>b` if it is one-way, `a-b` if two-way."""
        mark = "-" if circuit.is_two_way else ">"
        return f"{self.names.name(circuit.source)}{mark}{self.names.name(circuit.target)}"

    def pairs(self, circuit: Circuit) -> list[Pair]:
        """Return the cross-connects of a circuit, as port numbers of the matrix."""
        return [(port_in, self.names.ports + port_out) for port_in, port_out in circuit.list_ends()]

    def find(self, name: str) -> Circuit:
        """Return the circuit with a name. Raise `MatrixRefusal` if it does not exist."""
        for circuit in self.list_circuits():
            if self.name(circuit) == name.strip():
                return circuit
        raise MatrixRefusal(Reason.NOT_CONNECTED, 0)

    def provision(self, source: int, target: int, *, is_two_way: bool, group: str) -> Circuit:
        """Reserve the ports of a new circuit, and return it. Raise `MatrixRefusal` if a port is in use or unusable."""
        circuit = Circuit(source, target, is_two_way, group or "SYSTEM")
        pairs = self.pairs(circuit)
        if is_two_way and source == target:
            raise MatrixRefusal(Reason.REPEATED, source)
        if any(self._share_ports(circuit, pairs) for circuit in self.list_circuits()):
            raise MatrixRefusal(Reason.OCCUPIED, source)
        self._device.matrix.plan_connections(
            [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        )  # only to check: raises `MatrixRefusal`
        self._circuits.append(circuit)
        return circuit

    def activate(self, circuit: Circuit) -> None:
        """Connect a provisioned circuit. Raise `MatrixRefusal` if a port is in use or unusable.

        Do nothing if the circuit is active, or if a fault (`skip_activate`, `stuck`) prevents the activation.
        """
        if self.skipped_activations:
            self.skipped_activations -= 1
            self._device.faults.fire_counts["skip_activate"] += 1
            return
        if circuit.is_active:
            return
        pairs = self.pairs(circuit)
        connections = self._device.matrix.plan_connections(
            [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        )
        if self._device.faults.stuck_pairs.intersection(pairs):  # connect both directions, or neither
            self._device.faults.fire_counts["stuck"] += 1
            return
        circuit.is_active = True
        self._device.faults.fire_counts["oc_fail"] += len(self.dark.intersection(pairs))
        self._device.change(connections)

    def deactivate(self, circuit: Circuit) -> None:
        """Disconnect a circuit, but keep its ports reserved."""
        if circuit.is_active:
            connections = self._device.matrix.plan_removal([pair[0] for pair in self.pairs(circuit)])
            circuit.is_active = False
            self._device.change(connections)

    def delete(self, circuit: Circuit) -> None:
        """Deactivate a circuit if it is active, and remove it."""
        self.deactivate(circuit)
        self._circuits.remove(circuit)

    # -- states and power readings

    def describe_states(self, circuit: Circuit, pairs: Iterable[Pair] = ()) -> tuple[str, str, str]:
        """Return the administrative state, operational state and operational capability of a circuit.

        The states are `UMA`, `RDY` for a provisioned circuit, `moving_states` while mirrors move, and `IS`, `IS`
        afterwards. The capability is `FAIL` for a connected circuit without light, otherwise `OK`. `pairs` selects
        directions of the circuit. The default is all directions.
        """
        if not circuit.is_active:
            return "UMA", "RDY", "OK"
        pairs = tuple(pairs) or self.pairs(circuit)
        if any(self._device.is_moving(pair[0]) for pair in pairs):
            return (*self.moving_states, "OK")
        is_lit = all(self.read_power_dbm(output) is not None for _, output in pairs)
        return "IS", "IS", "OK" if is_lit else "FAIL"

    def describe_fibre_states(self, number: int) -> tuple[str, str, str]:
        """Return the administrative state, operational state and operational capability of a port of the matrix.

        An unused port is `OOS-NP`, `OOS`, `OK`, as captures show. The states of failed, locked and disabled ports are
        assumptions.
        """
        state = self._device.matrix.get_state(number)
        if state == "F":
            return "IS", "OOS", "FAIL"
        if number in self._device.matrix.locked:
            return "LCK", "IS", "OK"
        if state == "D":
            return "OOS-MA", "OOS", "OK"
        return ("IS", "IS", "OK") if self.find_circuit(number) else ("OOS-NP", "OOS", "OK")

    def find_owner(self, number: int) -> str:
        """Return `TRANSIT` if a circuit uses a port of the matrix, otherwise `NONE`."""
        return "TRANSIT" if self.find_circuit(number) else "NONE"

    def read_power_dbm(self, number: int) -> float | None:
        """Return the power reading of a port of the matrix in dBm, or None if there is no light."""
        dbm = self._device.read_power_dbm(number)
        dark = {pair[1] for pair in self.dark if pair in self._device.matrix.connections.items()}
        return None if number in dark or dbm <= DARK_FLOOR_DBM else dbm

    def describe(self, refusal: MatrixRefusal) -> str:
        """Return the device's text for a refusal."""
        port = self.names.name((refusal.port - 1) % self.names.ports + 1) if refusal.port else "?"
        return _DESCRIPTIONS.get(refusal.reason, f"Failed: {refusal.reason.value}").format(port=port)

    def label(self, port: int) -> str:
        """Return the label of a port, empty if it has none."""
        return self._device.labels.get(port, "")

    # -- faults

    def list_faults(self) -> dict[str, Fault]:
        """Return the faults `skip_activate` (activation has no effect) and `oc_fail` (a pair passes no light)."""
        return {
            "skip_activate": Fault(
                lambda request: setattr(self, "skipped_activations", request.get_integer("count", 1)),
                lambda _: setattr(self, "skipped_activations", 0),
            ),
            "oc_fail": Fault(
                lambda request: self._darken(request.get_pair("pair")),
                lambda _: self.dark.clear(),
                main_field="pair",
            ),
        }

    def _darken(self, pair: Pair) -> None:
        for port in pair:
            self._device.matrix.check_port(port)
        self.dark.add(pair)
        self._device.faults.fire_counts["oc_fail"] += pair in self._device.matrix.connections.items()


@dataclass(frozen=True, slots=True)
class PortNames:
    """Port names of a switch with `ports` ports."""

    ports: int

    def name(self, number: int) -> str:
        """Return the name of a port by its number, counted from 1.

        >>> PortNames(320).name(1), PortNames(320).name(9), PortNames(320).name(65)
        ('1.1.1', '1.2.1', '2.1.1')
        """
        fibres, port = divmod(number - 1, PORTS_PER_FIBRE)
        segment, fibre = divmod(fibres, FIBRES_PER_SEGMENT)
        return f"{segment + 1}.{fibre + 1}.{port + 1}"

    def number(self, name: str) -> int:
        """Return the number of a port by its name. Raise `MatrixRefusal` if the port does not exist."""
        match = _PORT_NAME.fullmatch(name.strip())
        if match is None or not all(1 <= int(part) <= 8 for part in match.groups()):
            raise MatrixRefusal(Reason.NO_SUCH_PORT, 0)
        segment, fibre, port = (int(part) - 1 for part in match.groups())
        number = (segment * FIBRES_PER_SEGMENT + fibre) * PORTS_PER_FIBRE + port + 1
        if number > self.ports:
            raise MatrixRefusal(Reason.NO_SUCH_PORT, number)
        return number
