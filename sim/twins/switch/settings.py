"""Settings of a simulated switch of any family."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from sim.models.clock import Clock
from sim.twins.plant import Plant
from sim.twins.switch.device import BootMode, SwitchDevice, SwitchFaults
from sim.twins.switch.matrix import Matrix, WhenOccupied


def serial_number(name: str) -> str:
    """Return the serial number of a twin of this name: `SIM` and six digits.

    >>> serial_number("ocs1")
    'SIM336831'
    """
    return f"SIM{zlib.crc32(name.encode()) % 1_000_000:06d}"


class SettingError(Exception):
    """An option that this family does not have, or a value it cannot have."""


@dataclass(frozen=True, slots=True)
class TwinSettings:
    """Name, size, surroundings and character of one twin.

    `switch_time_s` and the account are None for what the family is delivered with. `options` are the
    family's own, as text: behaviour that the published material leaves open.
    """

    name: str
    inputs: int
    outputs: int
    plant: Plant
    clock: Clock
    switch_time_s: float | None = None
    boot_mode: BootMode = "DARK"
    user: str | None = None
    password: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def serial_number(self) -> str:
        """Serial number that follows from the name, `SIM` and six digits."""
        return serial_number(self.name)

    def account(self, user: str, password: str) -> tuple[str, str]:
        """Return the account to log in with: the one given, else the factory's."""
        return self.user or user, password if self.password is None else self.password

    def only(self, *known: str) -> TwinSettings:
        """Return these settings. Raises `SettingError` for an option that is not among `known`."""
        for name in self.options:
            if name not in known:
                offered = f"known: {', '.join(known)}" if known else "it has none"
                raise SettingError(f"this family has no option {name!r}; {offered}")
        return self

    def choice(self, name: str, *values: str) -> str:
        """Return an option that is one of `values`; the first is the default. Raises `SettingError`."""
        value = self.options.get(name, values[0])
        if value not in values:
            raise SettingError(f"option {name} must be one of {', '.join(values)}, not {value!r}")
        return value

    def flag(self, name: str) -> bool:
        """Return an option that is yes or no; no is the default. Raises `SettingError`."""
        return self.choice(name, "no", "yes") == "yes"

    @property
    def one_session(self) -> bool:
        """Option `sessions` of twins on SSH: a connection takes many shells and commands, or ends with its first.

        Raises `SettingError`.
        """
        return self.choice("sessions", "many", "one") == "one"

    def number(self, name: str, default: float) -> float:
        """Return an option that is a number. Raises `SettingError`."""
        text = self.options.get(name, str(default))
        try:
            return float(text)
        except ValueError:
            raise SettingError(f"option {name} must be a number, not {text!r}") from None

    def move_s(self, default_s: float) -> float:
        """Return seconds of one move: what was asked for, else the family's own `default_s`."""
        return default_s if self.switch_time_s is None else self.switch_time_s

    def patch_panel(self) -> SwitchDevice:
        """Return a panel of fibres that stay plugged without power, moved by a robot or a person.

        What is changed on it has light at once; whoever moves takes the time, see `move_s`.
        """
        return SwitchDevice(
            self.name,
            Matrix(self.inputs, self.outputs),
            plant=self.plant,
            clock=self.clock,
            switch_time_s=0.0,
            hitless=True,
            boot_mode="AUTOSAVE",
            faults=SwitchFaults(),
            latching=True,
        )

    def device(
        self, *, switch_time_s: float, when_occupied: WhenOccupied = "reject", hitless: bool = False
    ) -> SwitchDevice:
        """Return the switch itself; `switch_time_s` is the family's own, used where none was given."""
        return SwitchDevice(
            self.name,
            Matrix(self.inputs, self.outputs, when_occupied),
            plant=self.plant,
            clock=self.clock,
            switch_time_s=self.move_s(switch_time_s),
            hitless=hitless,
            boot_mode=self.boot_mode,
            faults=SwitchFaults(),
        )
