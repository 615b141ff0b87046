"""Records of a discovery: the problem, its rounds, their observations, and the result. Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

NicKey = tuple[str, str]
"""Host and interface."""
Port = tuple[str, int]
"""Switch and number of the port, in the device's own numbers."""
Verdict = Literal["found", "dead", "uncertain"]


@dataclass(frozen=True, slots=True)
class Problem:
    """The NICs whose fibres are unknown, and the free ports at which these fibres may end."""

    nics: tuple[NicKey, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """One round: its circuits, from input to output, and the NICs that are down (`down_nics`) during the round."""

    purpose: Literal["all", "lasers", "circuits", "names"]
    circuits: Mapping[Port, Port]
    down_nics: frozenset[NicKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that was read in one round.

    `is_lit_by_port` holds the readings of power monitors, by port. `has_carrier_by_nic` holds the carrier of each NIC
    that was on. `senders_by_receiver` names the senders of the frames that each NIC received. `active_senders` names
    the NICs that sent. `time_text` is the time of a stored observation in ISO 8601, or empty.
    """

    is_lit_by_port: Mapping[Port, bool]
    has_carrier_by_nic: Mapping[NicKey, bool]
    senders_by_receiver: Mapping[NicKey, tuple[NicKey, ...]]
    active_senders: frozenset[NicKey]
    time_text: str = field(default="", compare=False)


History = tuple[tuple[Round, Observation], ...]


@dataclass(frozen=True, slots=True)
class FibreResult:
    """One fibre after a discovery: its port if found, its possible ports if uncertain."""

    verdict: Verdict
    port: Port | None = None
    candidates: tuple[Port, ...] = ()


@dataclass(frozen=True, slots=True)
class NicResult:
    """Both fibres of one NIC."""

    nic: NicKey
    transmit: FibreResult
    receive: FibreResult

    @property
    def is_found(self) -> bool:
        """True if both ends are known."""
        return self.transmit.verdict == self.receive.verdict == "found"

    def list_fibres(self, verdict: Verdict) -> tuple[str, ...]:
        """Return the labels of the fibres with this verdict, as `a/nic1:transmit`."""
        label = "/".join(self.nic)
        directions = (("transmit", self.transmit), ("receive", self.receive))
        return tuple(f"{label}:{direction}" for direction, fibre in directions if fibre.verdict == verdict)


@dataclass(frozen=True, slots=True)
class DiscoveryResult:
    """Result of a discovery: the NICs with their fibres, the number of rounds, and circuits and NICs in use.

    `unidentified_inputs` holds the lit inputs of unknown NICs. `notes` are sentences about circuits of earlier
    discoveries.
    """

    nic_results: tuple[NicResult, ...]
    round_count: int
    circuit_changes: int = 0
    busy_circuits: tuple[str, ...] = ()
    busy_nics: tuple[NicKey, ...] = ()
    unidentified_inputs: tuple[Port, ...] = ()
    resumed: bool = False
    notes: tuple[str, ...] = ()

    def list_fibres(self, verdict: Verdict) -> tuple[str, ...]:
        """Return the labels of all fibres with this verdict."""
        return tuple(name for nic in self.nic_results for name in nic.list_fibres(verdict))
