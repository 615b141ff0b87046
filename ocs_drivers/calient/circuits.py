"""What both languages of a Calient make of the circuits that they were told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ocs_drivers.calient.names import Circuit, Names, Pair
from ocs_drivers.errors import PortBusy, ProtocolDesync
from ocs_drivers.model import CrossConnects, PortState, Power, Snapshot

DARK_DBM = -90.0
"""What `NONE` stands for: another project's script reads it so."""
DARK_FLOOR_DBM = -55.0
"""At and below this a monitor sees no light; not confirmed on a unit."""


class Circuits:
    """The circuits of one reading, by what they join.

    Provisioned circuits pass no light, so they do not count as connected; but they book their ports, and a
    new circuit there is denied. One on an input that is to be connected goes first; one that only shares
    the output belongs to somebody else.
    """

    def __init__(self, names: Names, circuits: Iterable[Circuit]) -> None:
        self._names = names
        self._all = tuple(circuits)
        self._by_pair = {pair: circuit for circuit in self._all for pair in names.pairs(circuit)}

    def snapshot(self, monotonic_s: float, unfit: Mapping[int, PortState]) -> Snapshot:
        """What is connected; two-way circuits are tied. Raises `ProtocolDesync`."""
        standing = [circuit for circuit in self._all if circuit.state != "provisioned"]
        pairs = [pair for circuit in standing for pair in self._names.pairs(circuit)]
        try:
            connections = CrossConnects(pairs)
        except ValueError as error:
            raise ProtocolDesync(f"circuits that cannot be: {error}") from error
        tied = frozenset(self._names.pairs(circuit) for circuit in standing if circuit.two_way)
        return Snapshot(connections, monotonic_s, unfit, tied)

    def of(self, pair: Pair) -> Circuit | None:
        """The circuit that makes a pair, or is provisioned to."""
        return self._by_pair.get(pair)

    def is_moving(self, pair: Pair) -> bool:
        """Whether a pair was activated and its mirrors are still on their way."""
        circuit = self.of(pair)
        return circuit is not None and circuit.state == "moving"

    def arrived(self, snapshot: Snapshot, pairs: Iterable[Pair]) -> Snapshot:
        """The snapshot without those of `pairs` whose mirrors are still on their way."""
        moving = {pair for pair in pairs if self.is_moving(pair)}
        kept = CrossConnects(snapshot.connections.pairs - moving)
        return Snapshot(kept, snapshot.monotonic_s, snapshot.unfit, snapshot.tied)

    def in_the_way(self, pair: Pair, *, device: str) -> list[Circuit]:
        """Provisioned circuits on the input of `pair`, other than it itself.

        Raises `PortBusy` for one that books only its output.
        """
        found = []
        for (source, output), circuit in self._by_pair.items():
            if circuit.state != "provisioned" or (source, output) == pair:
                continue
            if source == pair[0]:
                found.append(circuit)
            elif output == pair[1]:
                raise PortBusy(
                    f"output {output} is booked by {circuit.name}, which is provisioned and not active",
                    peer=source,
                    device=device,
                    ports=pair,
                    cure="Delete that circuit on the switch, or take its input into the scope.",
                )
        return found


def power_reading(dbm: float | None) -> Power:
    """A reading; `NONE` is darkness.

    >>> power_reading(-3.4), power_reading(None).below_floor
    (Power(dbm=-3.4, below_floor=False), True)
    """
    if dbm is None:
        return Power(DARK_DBM, below_floor=True)
    return Power(dbm, below_floor=dbm <= DARK_FLOOR_DBM)


def unfit_ports(names: Names, states: Mapping[str, tuple[PortState, PortState]]) -> dict[int, PortState]:
    """The ports, by number, that cannot be used."""
    sides = {
        number + shift: state
        for name, pair in states.items()
        for number in (names.number(name),)
        for shift, state in ((0, pair[0]), (len(names), pair[1]))
    }
    return {port: state for port, state in sorted(sides.items()) if state is not PortState.ENABLED}
