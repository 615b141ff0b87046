"""The interface of every switch driver. Code above the drivers depends on this interface only.

`plan` is pure and returns the device's own atomic steps. `execute` executes one step and reports its outcome
from a read-back. `apply` plans and executes all steps, for use without a lab. Journal, rollback, retry policy and
leases belong to the layers above.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol, Self

from ocs_drivers.model import (
    ApplyReport,
    Attenuation,
    Capabilities,
    CrossConnects,
    Event,
    Identity,
    Outcome,
    PortInfo,
    Power,
    Snapshot,
    Step,
)

Guard = Callable[[], None]
"""Called before the first byte of every write; if it raises, nothing is sent."""


def allow_all() -> None:
    """Allow every write: the default guard."""


class OpticalSwitch(Protocol):
    """An optical circuit switch or patch panel.

    Methods may be called from several threads. Every wait ends at the driver's timeout. Failures are exceptions of
    `ocs_drivers.errors`, never a boolean result.
    """

    @property
    def address(self) -> str:
        """Address where the device answers, without credentials."""

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of this device; available after `open`."""

    def open(self) -> None:
        """Connect, log in and read the capabilities. Do nothing on an open switch.

        Raises `ConnectError`, `LoginFailed`, `Timeout`, `ProtocolDesync`.
        """

    def close(self) -> None:
        """Close the connection. Does nothing on a closed switch; circuits stay as they are."""

    def __enter__(self) -> Self:
        """Open and return the switch."""

    def __exit__(self, *exc_info: object) -> None:
        """Close."""

    def identity(self) -> Identity:
        """Return the identity that the device reported when it was opened."""

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports by number (inputs 1..N, outputs N+1..N+M), with the device's own names and their state."""

    def read(self) -> Snapshot:
        """Return the configuration the device holds now. Reconnect if the device has closed the connection."""

    def plan(
        self,
        target: CrossConnects,
        current: Snapshot | CrossConnects,
        scope: Collection[int] | None = None,
    ) -> tuple[Step, ...]:
        """Return the steps from `current` to `target`, without any I/O; empty if they agree.

        `scope` contains the input ports that may change (None: the whole switch). Raises `UnknownPort`,
        `WrongSide`, `PortError` for an input outside the scope, and `PortBusy` if a circuit outside
        the scope uses an output of the target.
        """

    def execute(self, step: Step, guard: Guard = allow_all) -> Outcome:
        """Execute one step and read back.

        Raises only before anything is sent (the exception of `guard`, `ConnectError`, `SwitchHeld`, `Conflict`).
        After the first byte, the outcome holds the error, even an error that `guard` raised before a later command.
        A write is sent again only if the device explicitly refused it.
        """

    def apply(
        self,
        target: CrossConnects,
        *,
        scope: Collection[int] | None = None,
        expect: CrossConnects | None = None,
        guard: Guard = allow_all,
        require_light: bool = False,
    ) -> ApplyReport:
        """Set the circuits of `scope` to `target`, and verify them by reading back.

        Raises the errors of `plan`. Raises `Conflict` if the switch does not hold `expect`, or if somebody else moves
        the same ports. Once bytes have been sent, raises `VerifyMismatch`, `DeviceError`, `PortError`, `RobotFault` or
        `PartialApply`, each with `.report`. With `require_light`, raises `NoLight` if the circuits are connected but an
        output of the target is dark, and `Unsupported` on a device that measures no light.
        """

    def connect(self, pairs: Mapping[int, int]) -> ApplyReport:
        """Connect these inputs to these outputs; leave all other inputs unchanged."""

    def disconnect(self, inputs: Iterable[int]) -> ApplyReport:
        """Disconnect these inputs; leave all other inputs unchanged."""

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Return the optical power at each port in dBm, or None for a port without a monitor."""

    def attenuation(self, port: int) -> Attenuation:
        """Return the attenuator setting of an output port. Raise `Unsupported` on a device without attenuators."""

    def set_attenuation(self, port: int, attenuation: Attenuation, guard: Guard = allow_all) -> None:
        """Set the attenuator of an output port. Raise `Unsupported` on a device without attenuators."""

    def shutter(self, ports: Collection[int], *, is_open: bool, guard: Guard = allow_all) -> None:
        """Open or close the shutters of these ports; circuits stay. Raises `Unsupported` without shutters."""

    def events(self, since: int = 0) -> tuple[Event, ...]:
        """Return the unsolicited messages after event number `since` that the bounded buffer still holds.

        Empty if `capabilities.async_events` is False.
        """
