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

    def list_directions(self) -> list[tuple[int, int]]:
        """Return the pair (input port, output port) of each direction."""
        forward = [(self.source, self.target)]
        return [*forward, (self.target, self.source)] if self.is_two_way else forward


class CircuitConfiguration:
    """All circuits of one switch. Methods that change circuits raise `MatrixRefusal` if the switch refuses.

    `moving_states` are the administrative and operational states of a circuit whose mirrors move. `dark_pairs` holds
    the pairs that pass no light because of the fault `oc_fail`.
    """

    def __init__(self, device: SwitchDevice, *, moving_states: tuple[str, str] = ("IS", "RDY")) -> None:
        self.moving_states = moving_states
        self.names = PortNames(device.matrix.input_count)
        self.skipped_activations = 0
        self.dark_pairs: set[Pair] = set()
        self._device = device
        self._circuits: list[Circuit] = []

    def list_circuits(self) -> list[Circuit]:
        """Update the list of circuits from the matrix, and return all circuits in order of creation."""
        connections = set(self._device.matrix.connections.items())
        self._circuits = [
            entry
            for entry in self._circuits
            if not entry.is_active or set(self.list_pairs(entry)) <= connections
        ]
        active_pairs = {
            pair for circuit in self._circuits if circuit.is_active for pair in self.list_pairs(circuit)
        }
        for pair in sorted(connections - active_pairs):
            self._circuits = [
                entry for entry in self._circuits if entry.is_active or not self._shares_port(entry, [pair])
            ]
            self._circuits.append(
                Circuit(pair[0], pair[1] - self.names.port_count, is_two_way=False, is_active=True)
            )
        return list(self._circuits)

    def find_circuit(self, matrix_port: int) -> Circuit | None:
        """Return the circuit that uses a port of the matrix, or None."""
        return next(
            (
                entry
                for entry in self.list_circuits()
                if any(matrix_port in pair for pair in self.list_pairs(entry))
            ),
            None,
        )

    def remove_inactive_circuits(self) -> None:
        """Remove all circuits that are not active. A power loss does this (assumption)."""
        self._circuits = [circuit for circuit in self._circuits if circuit.is_active]

    def _shares_port(self, circuit: Circuit, pairs: Iterable[Pair]) -> bool:
        ports = {port for pair in self.list_pairs(circuit) for port in pair}
        return any(ports.intersection(pair) for pair in pairs)

    def format_name(self, circuit: Circuit) -> str:
        """Return the name of a circuit: `a>b` if it is one-way, `a-b` if two-way."""
        mark = "-" if circuit.is_two_way else ">"
        return f"{self.names.format_name(circuit.source)}{mark}{self.names.format_name(circuit.target)}"

    def list_pairs(self, circuit: Circuit) -> list[Pair]:
        """Return the cross-connects of a circuit, as port numbers of the matrix."""
        return [
            (port_in, self.names.port_count + port_out) for port_in, port_out in circuit.list_directions()
        ]

    def find_circuit_by_name(self, name: str) -> Circuit:
        """Return the circuit with a name. Raise `MatrixRefusal` if it does not exist."""
        for circuit in self.list_circuits():
            if self.format_name(circuit) == name.strip():
                return circuit
        raise MatrixRefusal(Reason.NOT_CONNECTED, 0)

    def provision(self, source: int, target: int, *, is_two_way: bool, group: str) -> Circuit:
        """Reserve the ports of a new circuit, and return it. Raise `MatrixRefusal` if a port is in use or unusable."""
        circuit = Circuit(source, target, is_two_way, group or "SYSTEM")
        pairs = self.list_pairs(circuit)
        if is_two_way and source == target:
            raise MatrixRefusal(Reason.REPEATED, source)
        if any(self._shares_port(circuit, pairs) for circuit in self.list_circuits()):
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
        pairs = self.list_pairs(circuit)
        connections = self._device.matrix.plan_connections(
            [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        )
        if self._device.faults.stuck_pairs.intersection(pairs):  # connect both directions, or neither
            self._device.faults.fire_counts["stuck"] += 1
            return
        circuit.is_active = True
        self._device.faults.fire_counts["oc_fail"] += len(self.dark_pairs.intersection(pairs))
        self._device.change_connections(connections)

    def deactivate(self, circuit: Circuit) -> None:
        """Disconnect a circuit, but keep its ports reserved."""
        if circuit.is_active:
            connections = self._device.matrix.plan_removal([pair[0] for pair in self.list_pairs(circuit)])
            circuit.is_active = False
            self._device.change_connections(connections)

    def delete(self, circuit: Circuit) -> None:
        """Deactivate a circuit if it is active, and remove it."""
        self.deactivate(circuit)
        self._circuits.remove(circuit)

    # -- states and power readings

    def describe_circuit_states(self, circuit: Circuit, pairs: Iterable[Pair] = ()) -> tuple[str, str, str]:
        """Return the administrative state, operational state and operational capability of a circuit.

        The states are `UMA`, `RDY` for a provisioned circuit, `moving_states` while mirrors move, and `IS`, `IS`
        afterwards. The capability is `FAIL` for a connected circuit without light, otherwise `OK`. `pairs` selects
        directions of the circuit. The default is all directions.
        """
        if not circuit.is_active:
            return "UMA", "RDY", "OK"
        pairs = tuple(pairs) or self.list_pairs(circuit)
        if any(self._device.is_moving(pair[0]) for pair in pairs):
            return (*self.moving_states, "OK")
        is_lit = all(self.read_power_dbm(output) is not None for _, output in pairs)
        return "IS", "IS", "OK" if is_lit else "FAIL"

    def describe_fibre_states(self, matrix_port: int) -> tuple[str, str, str]:
        """Return the administrative state, operational state and operational capability of a port of the matrix.

        An unused port is `OOS-NP`, `OOS`, `OK`, as captures show. The states of failed, locked and disabled ports are
        assumptions.
        """
        state = self._device.matrix.get_state(matrix_port)
        if state == "F":
            return "IS", "OOS", "FAIL"
        if matrix_port in self._device.matrix.locked_ports:
            return "LCK", "IS", "OK"
        if state == "D":
            return "OOS-MA", "OOS", "OK"
        return ("IS", "IS", "OK") if self.find_circuit(matrix_port) else ("OOS-NP", "OOS", "OK")

    def find_owner(self, matrix_port: int) -> str:
        """Return `TRANSIT` if a circuit uses a port of the matrix, otherwise `NONE`."""
        return "TRANSIT" if self.find_circuit(matrix_port) else "NONE"

    def read_power_dbm(self, matrix_port: int) -> float | None:
        """Return the power reading of a port of the matrix in dBm, or None if there is no light."""
        dbm = self._device.read_power_dbm(matrix_port)
        dark_outputs = {
            pair[1] for pair in self.dark_pairs if pair in self._device.matrix.connections.items()
        }
        return None if matrix_port in dark_outputs or dbm <= DARK_FLOOR_DBM else dbm

    def describe_refusal(self, refusal: MatrixRefusal) -> str:
        """Return the device's text for a refusal."""
        port = self.names.format_name((refusal.port - 1) % self.names.port_count + 1) if refusal.port else "?"
        return _DESCRIPTIONS.get(refusal.reason, f"Failed: {refusal.reason.value}").format(port=port)

    def get_label(self, port: int) -> str:
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
                lambda _: self.dark_pairs.clear(),
                main_field="pair",
            ),
        }

    def _darken(self, pair: Pair) -> None:
        for port in pair:
            self._device.matrix.check_port(port)
        self.dark_pairs.add(pair)
        self._device.faults.fire_counts["oc_fail"] += pair in self._device.matrix.connections.items()


@dataclass(frozen=True, slots=True)
class PortNames:
    """Port names of a switch with `port_count` ports."""

    port_count: int

    def format_name(self, number: int) -> str:
        """Return the name of a port by its number, counted from 1.

        >>> PortNames(320).format_name(1), PortNames(320).format_name(9), PortNames(320).format_name(65)
        ('1.1.1', '1.2.1', '2.1.1')
        """
        fibres, port = divmod(number - 1, PORTS_PER_FIBRE)
        segment, fibre = divmod(fibres, FIBRES_PER_SEGMENT)
        return f"{segment + 1}.{fibre + 1}.{port + 1}"

    def parse_name(self, name: str) -> int:
        """Return the number of a port by its name. Raise `MatrixRefusal` if the port does not exist."""
        match = _PORT_NAME.fullmatch(name.strip())
        if match is None or not all(1 <= int(part) <= 8 for part in match.groups()):
            raise MatrixRefusal(Reason.NO_SUCH_PORT, 0)
        segment, fibre, port = (int(part) - 1 for part in match.groups())
        number = (segment * FIBRES_PER_SEGMENT + fibre) * PORTS_PER_FIBRE + port + 1
        if number > self.port_count:
            raise MatrixRefusal(Reason.NO_SUCH_PORT, number)
        return number
