"""Ports by name against ports by number, and circuits by name. The one place that knows how Calient counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ocs_drivers.errors import ProtocolDesync

Pair = tuple[int, int]
State = Literal["provisioned", "moving", "made"]

_CIRCUIT = re.compile(r"(?P<source>\d+\.\d+\.\d+)(?P<way>[>-])(?P<target>\d+\.\d+\.\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Circuit:
    """A circuit as the device tells it: by the names of its ports, one way or two.

    `state` is `provisioned` (booked, not lit), `moving` or `made`; `lit` is False for a made one without light.
    """

    source: str
    target: str
    two_way: bool
    state: State
    lit: bool

    @property
    def name(self) -> str:
        """What the device calls it.

        >>> Circuit("1.1.1", "1.1.2", False, "made", True).name
        '1.1.1>1.1.2'
        """
        return f"{self.source}{'-' if self.two_way else '>'}{self.target}"


def parse_circuit_name(name: str) -> tuple[str, str, bool]:
    """Source, target and whether it goes both ways. Raises `ProtocolDesync`.

    >>> parse_circuit_name("2.3.6-3.2.5")
    ('2.3.6', '3.2.5', True)
    """
    match = _CIRCUIT.fullmatch(name.strip())
    if match is None:
        raise ProtocolDesync("not the name of a circuit", received=name[:100])
    return match["source"], match["target"], match["way"] == "-"


def state_of(admin: str, operational: str) -> State:
    """The state of a circuit from the device's administrative and operational states.

    >>> state_of("UMA", "RDY"), state_of("IS", "RDY"), state_of("IS", "IS")
    ('provisioned', 'moving', 'made')
    """
    if admin != "IS":
        return "provisioned"
    return "made" if operational == "IS" else "moving"


class Names:
    """The ports of one switch, in the order in which it lists them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._numbers = {name: number for number, name in enumerate(self._names, 1)}
        if len(self._numbers) != len(self._names):
            raise ProtocolDesync("a port is listed twice")

    def __len__(self) -> int:
        return len(self._names)

    def name(self, port: int) -> str:
        """The device's word for input n, and for output N+n.

        >>> Names(["1.1.1", "1.1.2"]).name(4)
        '1.1.2'
        """
        return self._names[(port - 1) % len(self._names)]

    def number(self, name: str) -> int:
        """The input of a port. Raises `ProtocolDesync` for a port that was never listed."""
        if name not in self._numbers:
            raise ProtocolDesync(f"a port that the switch did not list: {name}")
        return self._numbers[name]

    def pairs(self, circuit: Circuit) -> frozenset[Pair]:
        """The cross-connects of a circuit, as numbers.

        >>> sorted(Names(["1.1.1", "1.1.2"]).pairs(Circuit("1.1.1", "1.1.2", True, "made", True)))
        [(1, 4), (2, 3)]
        """
        source, target, size = self.number(circuit.source), self.number(circuit.target), len(self)
        there = {(source, size + target)}
        return frozenset(there | {(target, size + source)} if circuit.two_way else there)

    def one_way(self, pair: Pair) -> tuple[str, str]:
        """The names of the two ports that a pair joins."""
        return self.name(pair[0]), self.name(pair[1])
