"""The fibres of a simulated lab, what can be wrong with them, and where each of them ends today.

A fibre is named after the end at the host: `"a/nic1:transmit"` runs from that transmitter to an input of
a switch, `"a/nic1:receive"` from an output of a switch to that receiver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

DEFAULT_FIBRE_LOSS_DB = 0.3

Direction = Literal["transmit", "receive"]
End = tuple[str, int]
"""A port of a switch: (switch name, port number)."""


class FibreError(ValueError):
    """There is no such fibre or NIC, or the two cannot be exchanged."""


@dataclass(frozen=True, slots=True)
class Fibre:
    """One fibre between a NIC and a switch port, as the wiring document describes it."""

    nic: str
    direction: Direction
    end: End
    loss_db: float

    @property
    def name(self) -> str:
        """`"a/nic1:transmit"`."""
        return f"{self.nic}:{self.direction}"


def fibres_of(wiring: Mapping[str, Any]) -> tuple[Fibre, ...]:
    """Return all fibres of a wiring document, in its order.

    Raises `FibreError` when two fibres end in the same port.
    """
    fibres = tuple(
        _fibre(f"{host['name']}/{nic['name']}", direction, nic[direction])
        for host in wiring.get("hosts", ())
        for nic in host["nics"]
        for direction in ("transmit", "receive")
    )
    user_of: dict[End, str] = {}
    for fibre in fibres:
        if user_of.setdefault(fibre.end, fibre.name) != fibre.name:
            switch, port = fibre.end
            raise FibreError(f"{switch}:{port} holds two fibres, {user_of[fibre.end]} and {fibre.name}")
    return fibres


def _fibre(nic: str, direction: Any, row: Mapping[str, Any]) -> Fibre:
    loss_db = float(row.get("loss_db", DEFAULT_FIBRE_LOSS_DB))
    return Fibre(nic, direction, (row["switch"], row["port"]), loss_db)


@dataclass(slots=True)
class FibrePlant:
    """The fibres and their faults; knows which fibre ends in a port now and what it loses.

    `swapped` maps each of two fibres to the other: their far ends at the switch are exchanged. A NIC sends no light
    when its laser is dark, by a fault, or when its interface is down, as the host wants it.
    """

    fibres: Mapping[str, Fibre]
    cut: set[str] = field(default_factory=set)
    extra_loss_db: dict[str, float] = field(default_factory=dict)
    swapped: dict[str, str] = field(default_factory=dict)
    dark_lasers: set[str] = field(default_factory=set)
    down_interfaces: set[str] = field(default_factory=set)
    _at: dict[End, Fibre] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rewire()

    def at(self, switch: str, port: int) -> Fibre | None:
        """Return the fibre plugged into a port now."""
        return self._at.get((switch, port))

    def end_of(self, fibre: Fibre) -> End:
        """Return the port in which a fibre ends now."""
        return self.fibres[self.swapped.get(fibre.name, fibre.name)].end

    def loss_db(self, fibre: Fibre) -> float:
        """Return the loss of a fibre; infinite when it is cut."""
        if fibre.name in self.cut:
            return float("inf")
        return fibre.loss_db + self.extra_loss_db.get(fibre.name, 0.0)

    def shines(self, nic: str) -> bool:
        """Return whether a NIC sends light."""
        return nic not in self.dark_lasers and nic not in self.down_interfaces

    def find_fibre(self, name: str) -> Fibre:
        """Return the fibre of that name. Raises `FibreError`."""
        if name not in self.fibres:
            raise FibreError(
                f"no fibre {name!r}; fibres are named like {next(iter(self.fibres), 'a/nic1:transmit')!r}"
            )
        return self.fibres[name]

    def check_nic(self, nic: str) -> None:
        """Raise `FibreError` when there is no such NIC."""
        if f"{nic}:transmit" not in self.fibres:
            raise FibreError(f"no NIC {nic!r}; NICs are named like 'a/nic1'")

    def swap(self, first: str, second: str) -> None:
        """Exchange the far ends of two fibres of the same direction. Raises `FibreError`."""
        one, other = self.find_fibre(first), self.find_fibre(second)
        if one.direction != other.direction or one == other:
            raise FibreError(
                f"{first} and {second} cannot be exchanged: name two different fibres of one direction"
            )
        if first in self.swapped or second in self.swapped:
            raise FibreError(f"{first} or {second} is exchanged already; unswap it first")
        self.swapped |= {first: second, second: first}
        self._rewire()

    def unswap(self, name: str | None = None) -> None:
        """Put back one exchanged fibre and its partner, or all of them."""
        if name is None:
            self.swapped.clear()
        elif name in self.swapped:
            del self.swapped[self.swapped.pop(name)]
        self._rewire()

    def _rewire(self) -> None:
        self._at = {self.end_of(fibre): fibre for fibre in self.fibres.values()}
