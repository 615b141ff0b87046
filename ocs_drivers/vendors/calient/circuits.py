"""Circuits and ports of a Calient, as reported in either protocol.

A provisioned circuit passes no light, so it does not count as connected. But it occupies its ports, and the device
denies a new circuit there, so a read shows it as a pending move. When a pair is added:

- a provisioned one-way circuit of the pair is activated;
- other provisioned circuits on its ports are deleted, or the plan raises `PortBusy` if one has an input outside the
  scope;
- all other provisioned circuits stay.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from ocs_drivers.errors import PortBusy, ProtocolDesync
from ocs_drivers.model import CrossConnects, PendingMove, PortState, Power, Snapshot
from ocs_drivers.vendors.calient.ports import Circuit, Pair, PortNames

NOT_PROVISIONED = "OOS-NP"
"""Administrative state of a port without a circuit, in captures of both protocols."""

DARK_DBM = -90.0
"""Power of a reading `NONE`, as in another project's script."""
DARK_FLOOR_DBM = -55.0
"""Highest power at which an output counts as dark; not confirmed on a unit."""


class CircuitTable:
    """The circuits of one read, by pair. Raises `ProtocolDesync` for unknown ports, and if circuits share a port."""

    def __init__(self, names: PortNames, circuits: Iterable[Circuit]) -> None:
        self._pairs_by_circuit = {circuit: names.get_pairs(circuit) for circuit in circuits}
        active_entries = [
            (pair, circuit)
            for circuit, pairs in self._pairs_by_circuit.items()
            if circuit.state != "provisioned"
            for pair in pairs
        ]
        self._circuit_by_pair = dict(active_entries)
        self._provisioned_circuits = [
            circuit for circuit in self._pairs_by_circuit if circuit.state == "provisioned"
        ]
        try:
            self._connections = CrossConnects(list(self._circuit_by_pair))
        except ValueError as error:
            raise ProtocolDesync(f"the device reports impossible circuits: {error}") from error
        if len(active_entries) != len(self._circuit_by_pair):
            raise ProtocolDesync("the device reports impossible circuits: two make the same pair")

    def make_snapshot(
        self,
        monotonic_s: float,
        unfit_ports: Mapping[int, PortState],
        *,
        awaited_pairs: Collection[Pair] = (),
    ) -> Snapshot:
        """Return the connected pairs, without those of `awaited_pairs` whose mirrors still move.

        Two-way circuits are tied.
        """
        moving_pairs = {pair for pair in awaited_pairs if self.is_moving(pair)}
        return Snapshot(
            CrossConnects(self._connections.pairs - moving_pairs),
            monotonic_s,
            unfit_ports,
            tied=frozenset(
                self._pairs_by_circuit[circuit]
                for circuit in self._circuit_by_pair.values()
                if circuit.is_two_way
            ),
            pending=tuple(
                PendingMove("connect", pair, source="provisioned, not active", request=circuit.name)
                for circuit in self._provisioned_circuits
                for pair in sorted(self._pairs_by_circuit[circuit])
            ),
        )

    def find_active(self, pair: Pair) -> Circuit | None:
        """Return the active circuit of a pair, or None."""
        return self._circuit_by_pair.get(pair)

    def find_provisioned_circuit(self, pair: Pair) -> Circuit | None:
        """Return the one-way circuit that is provisioned for exactly this pair, or None."""
        return next(
            (
                circuit
                for circuit in self._provisioned_circuits
                if self._pairs_by_circuit[circuit] == frozenset({pair})
            ),
            None,
        )

    def find_blocking_circuits(self, pair: Pair) -> list[Circuit]:
        """Return the provisioned circuits that occupy a port of a pair, except the pair's own one-way circuit."""
        own_circuit = self.find_provisioned_circuit(pair)
        return [
            circuit
            for circuit in self._provisioned_circuits
            if circuit is not own_circuit and _have_common_port(self._pairs_by_circuit[circuit], {pair})
        ]

    def is_moving(self, pair: Pair) -> bool:
        """Return True if a pair was activated and its mirrors are still moving."""
        circuit = self.find_active(pair)
        return circuit is not None and circuit.state == "moving"

    def find_other_pair(self, pair: Pair) -> Pair | None:
        """Return another pair, active or provisioned, that shares a port with `pair`, or None."""
        other_pairs = sorted(
            other_pair
            for pairs in self._pairs_by_circuit.values()
            for other_pair in pairs
            if other_pair != pair
        )
        return next(
            (other_pair for other_pair in other_pairs if _have_common_port({other_pair}, {pair})), None
        )

    def is_dark(self, output: int) -> bool:
        """Return True if the device reports that a circuit to this output gets no light."""
        return any(
            pair[1] == output and not circuit.is_lit for pair, circuit in self._circuit_by_pair.items()
        )


def _have_common_port(left_pairs: Collection[Pair], right_pairs: Collection[Pair]) -> bool:
    return any(left[0] == right[0] or left[1] == right[1] for left in left_pairs for right in right_pairs)


def check_not_provisioned(
    pending_moves: Iterable[PendingMove],
    added_pairs: Collection[Pair],
    scope: Collection[int],
    *,
    device: str,
) -> None:
    """Raise `PortBusy` if a provisioned circuit shares a port with a pair and has an input outside the scope."""
    pairs_by_circuit_name: dict[str, set[Pair]] = {}
    for move in pending_moves:
        if move.pair is not None:
            pairs_by_circuit_name.setdefault(move.request, set()).add(move.pair)
    for name, pairs in pairs_by_circuit_name.items():
        inputs_outside_scope = sorted(source for source, _ in pairs if source not in scope)
        blocked_pairs = sorted(pair for pair in added_pairs if _have_common_port(pairs, {pair}))
        if inputs_outside_scope and blocked_pairs:
            raise PortBusy(
                f"{name} is provisioned there, but not active",
                peer=inputs_outside_scope[0],
                device=device,
                ports=blocked_pairs[0],
                hint=f"Include input {inputs_outside_scope[0]} in the scope, or delete that circuit on the switch.",
            )


def make_power_reading(dbm: float | None, *, is_dark: bool = False) -> Power:
    """Return a reading, which is dark for `NONE` (None), for `is_dark`, and at or below `DARK_FLOOR_DBM`.

    >>> (
    ...     make_power_reading(-3.4),
    ...     make_power_reading(None).below_floor,
    ...     make_power_reading(-3.4, is_dark=True).below_floor,
    ... )
    (Power(dbm=-3.4, below_floor=False), True, True)
    """
    if dbm is None:
        return Power(DARK_DBM, below_floor=True)
    return Power(dbm, below_floor=is_dark or dbm <= DARK_FLOOR_DBM)


def decode_power(text: str) -> float | None:
    """Decode a power in dBm, as both protocols write it; None means no light. Raise `ValueError` for other text.

    >>> decode_power("-3.4"), decode_power("NONE")
    (-3.4, None)
    """
    if text.upper() == "NONE":
        return None
    dbm = float(text)
    if not math.isfinite(dbm):
        raise ValueError(text)
    return dbm


def decode_port_state(administrative_state: str, operational_state: str) -> PortState:
    """Return the state of a fibre from `AS` and `OS`.

    In captures a port without a circuit is `OOS-NP` and `OOS`: not provisioned, so it is free. The words for disabled
    (any other `OOS`) and locked ports (`LCK`) are assumptions. Any other word counts as usable, because the device
    itself refuses unusable ports. `OC` is ignored, because it may only mean that there is no light.

    >>> [
    ...     decode_port_state(*states).value
    ...     for states in (("IS", "IS"), ("OOS-NP", "OOS"), ("IS", "OOS"), ("OOS-MA", "OOS"), ("LCK", ""))
    ... ]
    ['enabled', 'enabled', 'failed', 'disabled', 'locked']
    """
    if administrative_state == NOT_PROVISIONED:
        return PortState.ENABLED
    if administrative_state.startswith("OOS"):
        return PortState.DISABLED
    if administrative_state == "LCK":
        return PortState.LOCKED
    return PortState.FAILED if operational_state.startswith("OOS") else PortState.ENABLED
