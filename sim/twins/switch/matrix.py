"""Rules of a switch: its ports, their states, and the connections that result from a command.

No operation changes a connection: each returns the resulting connections, or raises `MatrixRefusal`. All protocols
share these rules, and translate `MatrixRefusal` into their own error codes. In every family, inputs are 1..N and
outputs are N+1..N+M. Each frontend converts between these numbers and the port names of its vendor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

Pair = tuple[int, int]
Connections = dict[int, int]
OccupiedPolicy = Literal["reject", "replace"]


class Reason(Enum):
    """Reason why a switch refuses a command."""

    NO_SUCH_PORT = "port {port} does not exist"
    WRONG_SIDE = "port {port} is on the other side"
    OCCUPIED = "port {port} carries another connection"
    DISABLED = "port {port} is disabled"
    FAILED = "port {port} has failed"
    LOCKED = "port {port} is locked"
    REPEATED = "port {port} is named twice"
    UNEQUAL = "the two lists differ in length"
    NOT_CONNECTED = "port {port} is not connected that way"


class MatrixRefusal(Exception):
    """A command that the switch refuses, with the reason and the port (0 if the reason concerns no port)."""

    def __init__(self, reason: Reason, port: int = 0) -> None:
        self.reason = reason
        self.port = port
        super().__init__(reason.value.format(port=port))


@dataclass(slots=True)
class Matrix:
    """Size, commanded connections and port states of one switch.

    `occupied_policy` selects what `plan_connections` does if a connection already uses a port: refuse the command, or
    replace the connection. No document publishes what real devices do. `refusal_counts` counts refused commands by
    reason, for ports that are failed, disabled or locked.
    """

    input_count: int
    output_count: int
    occupied_policy: OccupiedPolicy = "reject"
    connections: Connections = field(default_factory=dict)
    disabled_ports: set[int] = field(default_factory=set)
    failed_ports: set[int] = field(default_factory=set)
    locked_ports: set[int] = field(default_factory=set)
    refusal_counts: Counter[Reason] = field(default_factory=Counter)

    @property
    def ports(self) -> range:
        """Numbers of all ports, inputs first."""
        return range(1, self.input_count + self.output_count + 1)

    def is_input(self, port: int) -> bool:
        """Return True if a port is on the input side. Raise `MatrixRefusal` if it does not exist."""
        self.check_port(port)
        return port <= self.input_count

    def check_input(self, port: int) -> None:
        """Raise `MatrixRefusal` unless the port is an input."""
        self._check_side(port, is_input=True)

    def check_port(self, port: int) -> None:
        """Raise `MatrixRefusal` if the port does not exist."""
        if port not in self.ports:
            raise MatrixRefusal(Reason.NO_SUCH_PORT, port)

    def get_state(self, port: int) -> Literal["D", "E", "F"]:
        """Return the state of a port: disabled (D), enabled (E), failed (F). Raise `MatrixRefusal` if it is unknown."""
        self.check_port(port)
        if port in self.failed_ports:
            return "F"
        return "D" if port in self.disabled_ports else "E"

    def find_peer(self, port: int) -> int | None:
        """Return the other end of the connection on a port, or None. Raise `MatrixRefusal` if there is no such port."""
        if self.is_input(port):
            return self.connections.get(port)
        return next((source for source, output in self.connections.items() if output == port), None)

    def passes_light(self, pair: Pair) -> bool:
        """Return True if light passes through both ports of a pair: neither is disabled or failed."""
        return not any(port in self.disabled_ports or port in self.failed_ports for port in pair)

    def plan_connections(
        self, inputs: Sequence[int], outputs: Sequence[int], occupied_policy: OccupiedPolicy | None = None
    ) -> Connections:
        """Return the connections after connecting the n-th of `inputs` to the n-th of `outputs`, for every n.

        If another connection uses one of these ports, `occupied_policy="replace"` removes it, and `"reject"` raises
        `MatrixRefusal`. None selects the rule of this switch. An unusable or repeated port raises `MatrixRefusal`, too.
        """
        added_connections = self._make_connections(inputs, outputs)
        remaining_connections = dict(self.connections)
        for source, output in self._find_conflicts(added_connections):
            if (occupied_policy or self.occupied_policy) == "reject":
                raise MatrixRefusal(Reason.OCCUPIED, source if source in added_connections else output)
            self._check_unlocked((source, output))
            del remaining_connections[source]
        return remaining_connections | added_connections

    def plan_exact_connections(self, inputs: Sequence[int], outputs: Sequence[int]) -> Connections:
        """Return connections that contain only these pairs. Raise `MatrixRefusal` for a port that cannot be used."""
        target_connections = self._make_connections(inputs, outputs)
        for pair in self.connections.items() - target_connections.items():
            self._check_unlocked(pair)
        return target_connections

    def plan_removal(self, inputs: Sequence[int], outputs: Sequence[int] = ()) -> Connections:
        """Return the connections after disconnecting `inputs`.

        `outputs` is empty, or names the other end of each connection. An input without a connection is accepted.
        Raise `MatrixRefusal` if an input is connected to another output, or a port is locked.
        """
        if outputs and len(outputs) != len(inputs):
            raise MatrixRefusal(Reason.UNEQUAL)
        for port in inputs:
            self._check_side(port, is_input=True)
        for source, output in zip(inputs, outputs, strict=False):
            self._check_side(output, is_input=False)
            if self.connections.get(source, output) != output:
                raise MatrixRefusal(Reason.NOT_CONNECTED, source)
        return self._remove_inputs(inputs)

    def plan_port_removal(self, ports: Iterable[int]) -> Connections:
        """Return the connections that use none of `ports`, which are inputs or outputs.

        Raise `MatrixRefusal` if a port does not exist, or a connection to remove has a locked port.
        """
        removed_ports = set(ports)
        for port in removed_ports:
            self.check_port(port)
        return self._remove_inputs(
            source for source, output in self.connections.items() if removed_ports & {source, output}
        )

    def plan_full_removal(self) -> Connections:
        """Return the empty configuration. Raise `MatrixRefusal` if a locked port carries a connection."""
        return self._remove_inputs(tuple(self.connections))

    def _remove_inputs(self, inputs: Iterable[int]) -> Connections:
        remaining_connections = dict(self.connections)
        for source in inputs:
            output = remaining_connections.pop(source, None)
            if output is not None:
                self._check_unlocked((source, output))
        return remaining_connections

    def _find_conflicts(self, added_connections: Mapping[int, int]) -> list[Pair]:
        outputs = set(added_connections.values())
        return [
            pair
            for pair in self.connections.items()
            if added_connections.get(pair[0]) != pair[1]
            and (pair[0] in added_connections or pair[1] in outputs)
        ]

    def _make_connections(self, inputs: Sequence[int], outputs: Sequence[int]) -> Connections:
        if len(inputs) != len(outputs):
            raise MatrixRefusal(Reason.UNEQUAL)
        for is_input, ports in ((True, inputs), (False, outputs)):
            self._check_usable(ports, is_input=is_input)
        return dict(zip(inputs, outputs, strict=True))

    def _check_usable(self, ports: Sequence[int], *, is_input: bool) -> None:
        earlier_ports: set[int] = set()
        for port in ports:
            self._check_side(port, is_input=is_input)
            if port in earlier_ports:
                raise MatrixRefusal(Reason.REPEATED, port)
            earlier_ports.add(port)
            self._check_healthy(port)

    def _check_healthy(self, port: int) -> None:
        for reason, ports in (
            (Reason.FAILED, self.failed_ports),
            (Reason.DISABLED, self.disabled_ports),
            (Reason.LOCKED, self.locked_ports),
        ):
            if port in ports:
                raise self._make_refusal(reason, port)

    def _check_side(self, port: int, *, is_input: bool) -> None:
        if self.is_input(port) != is_input:
            raise MatrixRefusal(Reason.WRONG_SIDE, port)

    def _check_unlocked(self, pair: Pair) -> None:
        for port in pair:
            if port in self.locked_ports:
                raise self._make_refusal(Reason.LOCKED, port)

    def _make_refusal(self, reason: Reason, port: int) -> MatrixRefusal:
        self.refusal_counts[reason] += 1
        return MatrixRefusal(reason, port)
