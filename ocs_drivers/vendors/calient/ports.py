"""Port names and numbers, and circuit names; the only module that knows Calient's numbering."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from ocs_drivers.errors import ProtocolDesync

_T = TypeVar("_T")

Pair = tuple[int, int]
State = Literal["provisioned", "moving", "made"]

_PORT = re.compile(r"\d{1,4}\.\d{1,4}\.\d{1,4}", re.ASCII)
_CIRCUIT = re.compile(rf"(?P<source>{_PORT.pattern})(?P<way>[>-])(?P<target>{_PORT.pattern})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Circuit:
    """A circuit as the device reports it: its name, the names of its ports, and its direction.

    `state` is `provisioned` (reserved, without light), `moving` or `made`; `is_lit` is False if it is dark.
    """

    name: str
    source_port: str
    target_port: str
    is_two_way: bool
    state: State
    is_lit: bool


def format_circuit_name(source: str, target: str) -> str:
    """Return the device's name for a one-way circuit.

    >>> format_circuit_name("1.1.1", "1.1.2")
    '1.1.1>1.1.2'
    """
    return f"{source}>{target}"


def parse_circuit_name(name: str) -> tuple[str, str, bool]:
    """Return the source, the target, and True for a two-way circuit. Raise `ProtocolDesync` for any other text.

    >>> parse_circuit_name("2.3.6-3.2.5")
    ('2.3.6', '3.2.5', True)
    """
    match = _CIRCUIT.fullmatch(name.strip())
    if match is None:
        raise ProtocolDesync(f"{name[:40]!r} is not the name of a circuit like 1.1.1>1.1.2")
    return match["source"], match["target"], match["way"] == "-"


def decode_circuit_state(administrative_state: str, operational_state: str) -> State:
    """Return the state of a circuit from the device's administrative and operational states.

    >>> (
    ...     decode_circuit_state("UMA", "RDY"),
    ...     decode_circuit_state("IS", "RDY"),
    ...     decode_circuit_state("IS", "IS"),
    ... )
    ('provisioned', 'moving', 'made')
    """
    if administrative_state != "IS":
        return "provisioned"
    return "made" if operational_state == "IS" else "moving"


class PortNames:
    """The ports of one switch, numbered in the order of segment, fibre and port.

    Raises `ProtocolDesync` for an invalid name, or for a port that is listed twice.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(sorted(names, key=_parse_port_name))
        self._numbers = {name: number for number, name in enumerate(self._names, 1)}
        if len(self._numbers) != len(self._names):
            raise ProtocolDesync("the device listed a port twice")

    def __len__(self) -> int:
        return len(self._names)

    def get_name(self, port: int) -> str:
        """Return the device's name of a port.

        On a switch with N names, input n and output N+n have the same name.

        >>> PortNames(["1.1.10", "1.1.2"]).get_name(3)
        '1.1.2'
        """
        return self._names[(port - 1) % len(self._names)]

    def get_number(self, name: str) -> int:
        """Return the input number of a port. Raise `ProtocolDesync` for a port that was never listed."""
        if name not in self._numbers:
            raise ProtocolDesync(f"the device names port {name[:40]!r}, which it did not list")
        return self._numbers[name]

    def check_complete(self, by_name: Mapping[str, _T]) -> Mapping[str, _T]:
        """Return `by_name` itself. Raise `ProtocolDesync` unless it covers exactly these ports."""
        if by_name.keys() != self._numbers.keys():
            differing = sorted(by_name.keys() ^ self._numbers.keys())[:8]
            raise ProtocolDesync(
                f"ports are missing, or differ from the first reading: {', '.join(differing)}"
            )
        return by_name

    def get_pairs(self, circuit: Circuit) -> frozenset[Pair]:
        """Return the cross-connects of a circuit, as numbers.

        >>> circuit = Circuit("1.1.1-1.1.2", "1.1.1", "1.1.2", True, "made", True)
        >>> sorted(PortNames(["1.1.1", "1.1.2"]).get_pairs(circuit))
        [(1, 4), (2, 3)]
        """
        source, target, size = (
            self.get_number(circuit.source_port),
            self.get_number(circuit.target_port),
            len(self),
        )
        forward = {(source, size + target)}
        return frozenset(forward | {(target, size + source)} if circuit.is_two_way else forward)

    def get_port_names(self, pair: Pair) -> tuple[str, str]:
        """Return the names of the two ports that a pair joins."""
        return self.get_name(pair[0]), self.get_name(pair[1])


def _parse_port_name(name: str) -> tuple[int, ...]:
    if _PORT.fullmatch(name) is None:
        raise ProtocolDesync(f"{name[:40]!r} is not the name of a port like 1.1.2")
    return tuple(map(int, name.split(".")))
