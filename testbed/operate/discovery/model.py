"""Discovery as data: what is asked for, what one round does, what it shows, and what follows. Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

NicName = tuple[str, str]
"""Host and interface."""
Port = tuple[str, int]
"""Switch and number of the port, in the device's own numbers."""
Verdict = Literal["found", "dead", "uncertain"]


@dataclass(frozen=True, slots=True)
class Problem:
    """NICs whose fibres are sought, and the free ports at which these may end."""

    nics: tuple[NicName, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """One round: the circuits that stand, from input to output, and the NICs that are switched off meanwhile."""

    purpose: Literal["all", "lasers", "circuits", "names"]
    circuits: Mapping[Port, Port]
    off: frozenset[NicName] = frozenset()


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that one round shows.

    `lit` are the readings of power monitors, by port; a port without a monitor is absent. `carriers` are those of
    the NICs that were on. `heard` names the senders of the frames that each NIC received, `spoke` the NICs that
    could send, `at` is the time, as ISO 8601 has it, once it was written down.
    """

    lit: Mapping[Port, bool]
    carriers: Mapping[NicName, bool]
    heard: Mapping[NicName, tuple[NicName, ...]]
    spoke: frozenset[NicName]
    at: str = field(default="", compare=False)


History = tuple[tuple[Round, Observation], ...]


@dataclass(frozen=True, slots=True)
class FibreResult:
    """One fibre after discovery: its port when found, the ports that are left when it is uncertain."""

    verdict: Verdict
    port: Port | None = None
    candidates: tuple[Port, ...] = ()


@dataclass(frozen=True, slots=True)
class NicResult:
    """Both fibres of one NIC."""

    nic: NicName
    transmit: FibreResult
    receive: FibreResult

    @property
    def is_found(self) -> bool:
        """True if both ends are known."""
        return self.transmit.verdict == self.receive.verdict == "found"

    def fibres(self, verdict: Verdict) -> tuple[str, ...]:
        """Return the fibres of a verdict, as `a/nic1:transmit`."""
        label = "/".join(self.nic)
        ways = (("transmit", self.transmit), ("receive", self.receive))
        return tuple(f"{label}:{way}" for way, fibre in ways if fibre.verdict == verdict)


@dataclass(frozen=True, slots=True)
class Discovered:
    """Result of a discovery: every NIC that was sought, the rounds it took, and what was left alone."""

    nics: tuple[NicResult, ...]
    rounds: int
    circuit_changes: int = 0
    busy_circuits: tuple[str, ...] = ()
    busy_nics: tuple[NicName, ...] = ()
    nameless: tuple[Port, ...] = ()
    resumed: bool = False
    notes: tuple[str, ...] = ()

    def fibres(self, verdict: Verdict) -> tuple[str, ...]:
        """Return all fibres of a verdict."""
        return tuple(name for nic in self.nics for name in nic.fibres(verdict))
