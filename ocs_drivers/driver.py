"""What every driver writes the same way over its own `read` and `execute`, written once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Self

from ocs_drivers import planning, transaction
from ocs_drivers.contract import Guard, unguarded
from ocs_drivers.device_lock import DeviceLock
from ocs_drivers.errors import Unsupported
from ocs_drivers.model import (
    ApplyReport,
    Attenuation,
    Capabilities,
    CrossConnects,
    Event,
    Outcome,
    Snapshot,
    Step,
)


class SwitchDriver(ABC):
    """The vendor-independent half of a driver; a vendor adds the conversation.

    Writes of all drivers of one address in this process take turns, and a write of another process is
    refused with `SwitchHeld`. Reads never wait for writers of other connections.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._writing = DeviceLock(address)

    @property
    def address(self) -> str:
        """Where the device answers, without credentials."""
        return self._address

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What this very device can do."""

    @abstractmethod
    def open(self) -> None:
        """Connect and find out who answers."""

    @abstractmethod
    def close(self) -> None:
        """Hang up."""

    @abstractmethod
    def read(self) -> Snapshot:
        """What the device holds now."""

    @abstractmethod
    def execute(self, step: Step, guard: Guard = unguarded) -> Outcome:
        """Do one step and read back."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._address}>"

    def plan(
        self,
        target: CrossConnects,
        seen: Snapshot | CrossConnects,
        scope: Collection[int] | None = None,
    ) -> tuple[Step, ...]:
        """Steps from `seen` to `target`; see `ocs_drivers.planning.plan`."""
        return planning.plan(target, seen, capabilities=self.capabilities, scope=scope, device=self._address)

    def apply(
        self,
        target: CrossConnects,
        *,
        scope: Collection[int] | None = None,
        expect: CrossConnects | None = None,
        guard: Guard = unguarded,
    ) -> ApplyReport:
        """Make the switch hold `target` within `scope`; see `ocs_drivers.transaction.apply`."""
        with self._writing:
            return transaction.apply(self, target, scope=scope, expect=expect, guard=guard)

    def connect(self, pairs: Mapping[int, int]) -> ApplyReport:
        """Connect these inputs to these outputs, and touch no other input."""
        return self.apply(CrossConnects(pairs), scope=frozenset(pairs))

    def disconnect(self, inputs: Iterable[int]) -> ApplyReport:
        """Take down whatever circuits these inputs have, and touch no other input."""
        return self.apply(CrossConnects(), scope=frozenset(inputs))

    def attenuation(self, port: int) -> Attenuation:
        """The attenuator of an output port; a driver without attenuators leaves it at that."""
        raise self._unsupported("reading an attenuator", (port,))

    def set_attenuation(self, port: int, attenuation: Attenuation, guard: Guard = unguarded) -> None:
        """Set the attenuator of an output port; a driver without attenuators leaves it at that."""
        del attenuation, guard
        raise self._unsupported("setting an attenuator", (port,))

    def events(self, since: int = 0) -> tuple[Event, ...]:
        """Nothing, for devices that only speak when spoken to."""
        del since
        return ()

    def _unsupported(self, what: str, ports: Iterable[int] = ()) -> Unsupported:
        return Unsupported(
            f"this device or this protocol has no command for {what}",
            device=self._address,
            ports=ports,
            cure="See `capabilities`; on a Polatis, attenuators answer on TL1 only.",
        )
