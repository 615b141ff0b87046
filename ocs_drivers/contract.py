"""The one contract of every switch driver. Code above the drivers sees this and nothing of a vendor.

A driver offers `plan`, which is pure and says what would be done in the device's own atomic steps, and
`execute`, which does one step and says what became of it by reading back. `apply` is the loop over both,
for use without a lab; journal, rollback, retry policy and leases belong above.
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
"""Called before the first byte of every write; raise from it and nothing is sent."""


def allow_all() -> None:
    """Allow every write: the guard of whoever has none."""


class OpticalSwitch(Protocol):
    """An optical circuit switch or patch panel.

    Methods may be called from several threads. Every wait ends at the driver's timeout. Errors are those of
    `ocs_drivers.errors`; a boolean never stands for a failure.
    """

    @property
    def address(self) -> str:
        """Address where the device answers, without credentials."""

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of this very device; known once the switch was opened."""

    def open(self) -> None:
        """Connect, log in and find out capabilities; does nothing on an open switch.

        Raises `ConnectError`, `LoginFailed`, `Timeout`, `ProtocolDesync`.
        """

    def close(self) -> None:
        """Close the connection. Does nothing on a closed switch; circuits stay as they are."""

    def __enter__(self) -> Self:
        """Open and return the switch."""

    def __exit__(self, *exc_info: object) -> None:
        """Close."""

    def identity(self) -> Identity:
        """Return the identity that the device gave when it was opened."""

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports by number (inputs 1..N, outputs N+1..N+M), with the device's own names and their state."""

    def read(self) -> Snapshot:
        """Return the configuration the device holds now. Reconnects once when the device had closed the connection."""

    def plan(
        self,
        target: CrossConnects,
        seen: Snapshot | CrossConnects,
        scope: Collection[int] | None = None,
    ) -> tuple[Step, ...]:
        """Return the steps from `seen` to `target`, without a byte on the wire; empty when nothing differs.

        `scope` are the input ports that may be touched (None: the whole switch). Raises `UnknownPort`,
        `WrongSide`, `PortError` for an input outside the scope, and `PortBusy` when a circuit outside
        the scope holds a wanted output.
        """

    def execute(self, step: Step, guard: Guard = allow_all) -> Outcome:
        """Do one step and read back.

        Raises only while nothing has been sent (what `guard` raises, `ConnectError`, `SwitchHeld`, `Conflict`);
        whatever happens after the first byte is in the outcome, also a `guard` that stops the rest of a step.
        Never sends a write a second time unless the device refused the first explicitly.
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
        """Make the switch hold `target` within `scope`, and prove it by reading back.

        Raises what `plan` raises; `Conflict` when the switch does not hold `expect` or somebody else moves
        the same ports; once bytes have been sent, `VerifyMismatch`, `DeviceError`, `PortError`, `RobotFault`
        or `PartialApply`, each with `.report`; and, with `require_light`, `NoLight` when it is as asked for
        but an output of the target is dark (`Unsupported` on a device that measures no light).
        """

    def connect(self, pairs: Mapping[int, int]) -> ApplyReport:
        """Connect these inputs to these outputs, and touch no other input."""

    def disconnect(self, inputs: Iterable[int]) -> ApplyReport:
        """Take down whatever circuits these inputs have, and touch no other input."""

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Return the optical power at each port in dBm; None where the port has no monitor."""

    def attenuation(self, port: int) -> Attenuation:
        """Return the setting of the attenuator of an output port. Raises `Unsupported` where there are none."""

    def set_attenuation(self, port: int, attenuation: Attenuation, guard: Guard = allow_all) -> None:
        """Set the attenuator of an output port. Raises `Unsupported` where there are none."""

    def shutter(self, ports: Collection[int], *, is_open: bool, guard: Guard = allow_all) -> None:
        """Open or close the shutters of these ports; circuits stay. Raises `Unsupported` without shutters."""

    def events(self, since: int = 0) -> tuple[Event, ...]:
        """Return the unsolicited messages after event number `since`; a bounded buffer keeps the latest.

        Always empty where `capabilities.async_events` is False.
        """
