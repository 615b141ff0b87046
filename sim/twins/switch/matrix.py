"""Rules of a switch: ports, their states, and the arithmetic of cross-connects.

Pure: every operation gives the configuration that would follow, or raises `Refused` and nothing has happened.
All wire languages share these rules and translate `Refused` into their own codes. Inputs are 1..N, outputs
N+1..N+M for every family; a frontend translates from and to the names of its vendor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

Pair = tuple[int, int]
Connections = dict[int, int]
WhenOccupied = Literal["reject", "replace"]


class Reason(Enum):
    """Why a switch refuses."""

    NO_SUCH_PORT = "port {port} does not exist"
    WRONG_SIDE = "port {port} is on the other side"
    OCCUPIED = "port {port} carries another connection"
    DISABLED = "port {port} is disabled"
    FAILED = "port {port} has failed"
    LOCKED = "port {port} is locked"
    REPEATED = "port {port} is named twice"
    UNEQUAL = "the two lists differ in length"
    NOT_CONNECTED = "port {port} is not connected that way"


class Refused(Exception):
    """The switch will not do it; `reason` says why and `port` where."""

    def __init__(self, reason: Reason, port: int = 0) -> None:
        self.reason = reason
        self.port = port
        super().__init__(reason.value.format(port=port))


@dataclass(slots=True)
class Matrix:
    """Size, commanded connections and port states of one switch; `refusals` counts what unfit ports refused.

    `when_occupied` is what `add` does on a port that carries another connection: nobody has
    published what the real device does, so both can be had.
    """

    inputs: int
    outputs: int
    when_occupied: WhenOccupied = "reject"
    connections: Connections = field(default_factory=dict)
    disabled: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    locked: set[int] = field(default_factory=set)
    refusals: Counter[Reason] = field(default_factory=Counter)

    @property
    def ports(self) -> range:
        """All ports, inputs first."""
        return range(1, self.inputs + self.outputs + 1)

    def is_input(self, port: int) -> bool:
        """Return True if a port is on the input side. Raises `Refused` when it does not exist."""
        self.check_port(port)
        return port <= self.inputs

    def check_input(self, port: int) -> None:
        """Raise `Refused` unless this is an input."""
        self._check_side(port, is_input=True)

    def check_port(self, port: int) -> None:
        """Raise `Refused` when there is no such port."""
        if port not in self.ports:
            raise Refused(Reason.NO_SUCH_PORT, port)

    def state(self, port: int) -> Literal["D", "E", "F"]:
        """Return the device's letter for a port: disabled, enabled or failed."""
        self.check_port(port)
        if port in self.failed:
            return "F"
        return "D" if port in self.disabled else "E"

    def peer(self, port: int) -> int | None:
        """Return the other end of the connection on a port."""
        if self.is_input(port):
            return self.connections.get(port)
        return next((source for source, output in self.connections.items() if output == port), None)

    def passes(self, pair: Pair) -> bool:
        """Return True if both ports let light through."""
        return not any(port in self.disabled or port in self.failed for port in pair)

    def add(
        self, inputs: Sequence[int], outputs: Sequence[int], when_occupied: WhenOccupied | None = None
    ) -> Connections:
        """Return the connections after connecting `inputs` to `outputs` one by one, keeping the others."""
        new = self._pairs(inputs, outputs)
        kept = dict(self.connections)
        for source, output in self._in_the_way(new):
            if (when_occupied or self.when_occupied) == "reject":
                raise Refused(Reason.OCCUPIED, source if source in new else output)
            self._check_unlocked((source, output))
            del kept[source]
        return kept | new

    def only(self, inputs: Sequence[int], outputs: Sequence[int]) -> Connections:
        """Return the connections when nothing but these pairs is to be connected."""
        new = self._pairs(inputs, outputs)
        for pair in self.connections.items() - new.items():
            self._check_unlocked(pair)
        return new

    def without(self, inputs: Sequence[int], outputs: Sequence[int] = ()) -> Connections:
        """Return the connections without those of `inputs`; `outputs` is empty or names their other ends.

        An input without a connection is no error, a wrong other end is.
        """
        if outputs and len(outputs) != len(inputs):
            raise Refused(Reason.UNEQUAL)
        for port in inputs:
            self._check_side(port, is_input=True)
        for source, output in zip(inputs, outputs, strict=False):
            self._check_side(output, is_input=False)
            if self.connections.get(source, output) != output:
                raise Refused(Reason.NOT_CONNECTED, source)
        return self._dropping(inputs)

    def without_ports(self, ports: Iterable[int]) -> Connections:
        """Return the connections without those on `ports`, whichever side they name."""
        named = set(ports)
        for port in named:
            self.check_port(port)
        return self._dropping(
            source for source, output in self.connections.items() if named & {source, output}
        )

    def empty(self) -> Connections:
        """Return no connections at all."""
        return self._dropping(tuple(self.connections))

    def _dropping(self, inputs: Iterable[int]) -> Connections:
        kept = dict(self.connections)
        for source in inputs:
            output = kept.pop(source, None)
            if output is not None:
                self._check_unlocked((source, output))
        return kept

    def _in_the_way(self, new: Mapping[int, int]) -> list[Pair]:
        outputs = set(new.values())
        return [
            pair
            for pair in self.connections.items()
            if new.get(pair[0]) != pair[1] and (pair[0] in new or pair[1] in outputs)
        ]

    def _pairs(self, inputs: Sequence[int], outputs: Sequence[int]) -> Connections:
        if len(inputs) != len(outputs):
            raise Refused(Reason.UNEQUAL)
        for is_input, ports in ((True, inputs), (False, outputs)):
            self._check_usable(ports, is_input=is_input)
        return dict(zip(inputs, outputs, strict=True))

    def _check_usable(self, ports: Sequence[int], *, is_input: bool) -> None:
        seen: set[int] = set()
        for port in ports:
            self._check_side(port, is_input=is_input)
            if port in seen:
                raise Refused(Reason.REPEATED, port)
            seen.add(port)
            self._check_healthy(port)

    def _check_healthy(self, port: int) -> None:
        for reason, ports in (
            (Reason.FAILED, self.failed),
            (Reason.DISABLED, self.disabled),
            (Reason.LOCKED, self.locked),
        ):
            if port in ports:
                raise self._count_refusal(reason, port)

    def _check_side(self, port: int, *, is_input: bool) -> None:
        if self.is_input(port) != is_input:
            raise Refused(Reason.WRONG_SIDE, port)

    def _check_unlocked(self, pair: Pair) -> None:
        for port in pair:
            if port in self.locked:
                raise self._count_refusal(Reason.LOCKED, port)

    def _count_refusal(self, reason: Reason, port: int) -> Refused:
        self.refusals[reason] += 1
        return Refused(reason, port)
