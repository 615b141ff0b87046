"""The fibres of a simulated lab, their faults, and the switch port in which each fibre now ends.

A fibre has the name of its host end. Fibre `"a/nic1:transmit"` leads from this transmitter to a switch input, and fibre
`"a/nic1:receive"` leads from a switch output to this receiver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

DEFAULT_FIBRE_LOSS_DB = 0.3

Direction = Literal["transmit", "receive"]
SwitchPort = tuple[str, int]
"""A port of a switch: (switch name, port number)."""


class FibreError(ValueError):
    """An unknown fibre or NIC, a port with two fibres, or two fibres that cannot be exchanged."""


@dataclass(frozen=True, slots=True)
class Fibre:
    """One fibre of the wiring document, between a NIC and a switch port."""

    nic: str
    direction: Direction
    switch_port: SwitchPort
    loss_db: float

    @property
    def name(self) -> str:
        """Name of the fibre, such as `"a/nic1:transmit"`."""
        return f"{self.nic}:{self.direction}"


def list_fibres(wiring_document: Mapping[str, Any]) -> tuple[Fibre, ...]:
    """Return all fibres of a wiring document, in its order. Raise `FibreError` if two fibres end in one port."""
    owners = [(host["name"], host["nics"]) for host in wiring_document.get("hosts", ())]
    owners += [(board["name"], board["ports"]) for board in wiring_document.get("boards", ())]
    fibres = tuple(
        _make_fibre(f"{owner}/{nic['name']}", direction, nic[direction])
        for owner, nics in owners
        for nic in nics
        for direction in ("transmit", "receive")
    )
    fibre_by_port: dict[SwitchPort, str] = {}
    for fibre in fibres:
        if fibre_by_port.setdefault(fibre.switch_port, fibre.name) != fibre.name:
            switch, port = fibre.switch_port
            raise FibreError(
                f"{switch}:{port} has two fibres, {fibre_by_port[fibre.switch_port]} and {fibre.name}"
            )
    return fibres


def _make_fibre(nic: str, direction: Any, row: Mapping[str, Any]) -> Fibre:
    loss_db = float(row.get("loss_db", DEFAULT_FIBRE_LOSS_DB))
    return Fibre(nic, direction, (row["switch"], row["port"]), loss_db)


@dataclass(slots=True)
class FibrePlant:
    """All fibres of a lab and their faults.

    `partner_by_fibre` maps each of two fibres to the other if their switch ends are exchanged. A NIC sends no light if
    it is in `dark_lasers` (a fault) or in `down_interfaces` (down on its host).
    """

    fibres: Mapping[str, Fibre]
    cut_fibres: set[str] = field(default_factory=set)
    extra_loss_db: dict[str, float] = field(default_factory=dict)
    partner_by_fibre: dict[str, str] = field(default_factory=dict)
    dark_lasers: set[str] = field(default_factory=set)
    down_interfaces: set[str] = field(default_factory=set)
    _fibre_by_port: dict[SwitchPort, Fibre] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._index_fibres_by_port()

    def find_fibre_at_port(self, switch: str, port: int) -> Fibre | None:
        """Return the fibre that now ends in a switch port, or None."""
        return self._fibre_by_port.get((switch, port))

    def find_switch_port(self, fibre: Fibre) -> SwitchPort:
        """Return the switch port in which a fibre now ends."""
        return self.fibres[self.partner_by_fibre.get(fibre.name, fibre.name)].switch_port

    def compute_loss_db(self, fibre: Fibre) -> float:
        """Return the loss of a fibre in dB, or infinity if it is cut."""
        if fibre.name in self.cut_fibres:
            return float("inf")
        return fibre.loss_db + self.extra_loss_db.get(fibre.name, 0.0)

    def sends_light(self, nic: str) -> bool:
        """Return whether a NIC sends light."""
        return nic not in self.dark_lasers and nic not in self.down_interfaces

    def find_fibre(self, name: str) -> Fibre:
        """Return the fibre with a name. Raise `FibreError` if it does not exist."""
        if name not in self.fibres:
            raise FibreError(
                f"no fibre {name!r}; fibres are named like {next(iter(self.fibres), 'a/nic1:transmit')!r}"
            )
        return self.fibres[name]

    def check_nic(self, nic: str) -> None:
        """Raise `FibreError` if a NIC does not exist."""
        if f"{nic}:transmit" not in self.fibres:
            raise FibreError(f"no NIC {nic!r}; NICs are named like 'a/nic1'")

    def swap_fibres(self, first_name: str, second_name: str) -> None:
        """Exchange the switch ends of two fibres of the same direction.

        Raise `FibreError` if the fibres are unknown, equal, of different directions, or already exchanged.
        """
        first_fibre, second_fibre = self.find_fibre(first_name), self.find_fibre(second_name)
        if first_fibre.direction != second_fibre.direction or first_fibre == second_fibre:
            raise FibreError(
                f"{first_name} and {second_name} cannot be exchanged: name two different fibres of one direction"
            )
        if first_name in self.partner_by_fibre or second_name in self.partner_by_fibre:
            raise FibreError(f"{first_name} or {second_name} is exchanged already; unswap it first")
        self.partner_by_fibre |= {first_name: second_name, second_name: first_name}
        self._index_fibres_by_port()

    def unswap_fibres(self, name: str | None = None) -> None:
        """Undo the exchange of one fibre and its partner, or of all fibres for None."""
        if name is None:
            self.partner_by_fibre.clear()
        elif name in self.partner_by_fibre:
            del self.partner_by_fibre[self.partner_by_fibre.pop(name)]
        self._index_fibres_by_port()

    def _index_fibres_by_port(self) -> None:
        self._fibre_by_port = {self.find_switch_port(fibre): fibre for fibre in self.fibres.values()}
