"""Settings of a simulated switch of any family."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from sim.models.clock import Clock
from sim.twins.plant import Plant
from sim.twins.switch.device import BootMode, SwitchDevice, SwitchFaults
from sim.twins.switch.matrix import Matrix, OccupiedPolicy


def make_serial_number(name: str) -> str:
    """Return the serial number of the twin `name`: `SIM` and six digits.

    >>> make_serial_number("ocs1")
    'SIM336831'
    """
    return f"SIM{zlib.crc32(name.encode()) % 1_000_000:06d}"


class SettingError(Exception):
    """An option that the switch family does not have, or an invalid value of an option."""


@dataclass(frozen=True, slots=True)
class TwinSettings:
    """Name, size, plant, clock and behaviour of one twin.

    None for `switch_time_s`, `user` or `password` selects the default of the family. `options` are specific to the
    family, with values as text. They select behaviour that published documents leave open.
    """

    name: str
    input_count: int
    output_count: int
    plant: Plant
    clock: Clock
    switch_time_s: float | None = None
    boot_mode: BootMode = "DARK"
    user: str | None = None
    password: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def serial_number(self) -> str:
        """Serial number derived from the name: `SIM` and six digits."""
        return make_serial_number(self.name)

    def get_account(self, default_user: str, default_password: str) -> tuple[str, str]:
        """Return the user name and password of the login. The arguments are the factory defaults."""
        return self.user or default_user, default_password if self.password is None else self.password

    def check_options(self, *known_options: str) -> TwinSettings:
        """Return these settings unchanged. Raise `SettingError` if an option is not in `known_options`."""
        for name in self.options:
            if name not in known_options:
                hint = f"known: {', '.join(known_options)}" if known_options else "it has none"
                raise SettingError(f"this family has no option {name!r}; {hint}")
        return self

    def read_choice(self, name: str, *values: str) -> str:
        """Return an option. The first of `values` is the default. Raise `SettingError` if it is not in `values`."""
        value = self.options.get(name, values[0])
        if value not in values:
            raise SettingError(f"option {name} must be one of {', '.join(values)}, not {value!r}")
        return value

    def read_flag(self, name: str) -> bool:
        """Return True if an option is `yes`. The default is `no`. Raise `SettingError` for any other value."""
        return self.read_choice(name, "no", "yes") == "yes"

    @property
    def is_single_session(self) -> bool:
        """True if an SSH connection ends after its first shell or command.

        This is the option `sessions`: `one`, or the default `many`. Raise `SettingError` for any other value.
        """
        return self.read_choice("sessions", "many", "one") == "one"

    def read_number(self, name: str, default: float) -> float:
        """Return the value of a numeric option. Raise `SettingError` if it is not a number."""
        text = self.options.get(name, str(default))
        try:
            return float(text)
        except ValueError:
            raise SettingError(f"option {name} must be a number, not {text!r}") from None

    def get_switch_time_s(self, default_s: float) -> float:
        """Return the duration of a move in seconds: `switch_time_s` if it is set, otherwise `default_s`."""
        return default_s if self.switch_time_s is None else self.switch_time_s

    def make_patch_panel(self) -> SwitchDevice:
        """Return a patch panel. A robot or a person moves its fibres, which stay plugged without power.

        Its switching time is zero, because the robot or person waits for the duration of a move (`move_s`).
        """
        return SwitchDevice(
            self.name,
            Matrix(self.input_count, self.output_count),
            plant=self.plant,
            clock=self.clock,
            switch_time_s=0.0,
            is_hitless=True,
            boot_mode="AUTOSAVE",
            faults=SwitchFaults(),
            is_latching=True,
        )

    def make_device(
        self, *, switch_time_s: float, occupied_policy: OccupiedPolicy = "reject", is_hitless: bool = False
    ) -> SwitchDevice:
        """Return the switch that the settings describe. `switch_time_s` is the default of the family."""
        return SwitchDevice(
            self.name,
            Matrix(self.input_count, self.output_count, occupied_policy),
            plant=self.plant,
            clock=self.clock,
            switch_time_s=self.get_switch_time_s(switch_time_s),
            is_hitless=is_hitless,
            boot_mode=self.boot_mode,
            faults=SwitchFaults(),
        )
