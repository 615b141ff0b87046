"""The TL1 commands about single ports: shutters, power monitors, attenuators, labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sim.models.light import Attenuator
from sim.twins.families.polatis.tl1_aid import aid_ports
from sim.twins.frontends.tl1_syntax import Command, Denied
from sim.twins.switch.device import SwitchDevice

Lines = Sequence[str]
PortHandler = Callable[[Command], Lines]

_LEVEL_RANGE_DB = 80.0
_MOST_CYCLES = 1000


@dataclass(frozen=True, slots=True)
class Monitor:
    """Settings of a power monitor: wavelength in nm, offset added to its readings in dB, averaging."""

    wavelength_nm: float = 1550.0
    offset_db: float = 0.0
    averaging: int = 4

    def __str__(self) -> str:
        return f"{self.wavelength_nm:.1f},{self.offset_db:.1f},{self.averaging}"


@dataclass(frozen=True, slots=True)
class AttenuatorSetting:
    """Settings of an attenuator: mode, level in dBm or dB, reference port (0 for none)."""

    mode: str = "NONE"
    level: float = 0.0
    reference: int = 0

    def __str__(self) -> str:
        return f"{self.mode},{self.level:.1f},{self.reference}"


@dataclass(frozen=True, slots=True)
class Flap:
    """A link flap test: dark for `off_s`, light for `on_s`, so many times."""

    off_s: float
    on_s: float
    cycles: int


class PortCommands:
    """Executes the port commands on a device."""

    def __init__(self, device: SwitchDevice) -> None:
        self._flaps: dict[int, Flap] = {}
        self._device = device
        self._matrix = device.matrix
        self._monitors: dict[int, Monitor] = {}
        self._settings: dict[int, AttenuatorSetting] = {}

    def table(self) -> Mapping[str, PortHandler]:
        """Return commands by verb."""
        return {
            "OPR-PORT-SHUTTER": lambda command: self._set_shutters(command, disabled=True),
            "RLS-PORT-SHUTTER": lambda command: self._set_shutters(command, disabled=False),
            "RTRV-PORT-SHUTTER": lambda command: self._each(command, self._shutter),
            "ENT-PORT-FLAP": self._set_flaps,
            "OPR-PORT-FLAP": self._flap,
            "RTRV-PORT-POWER": lambda command: self._each(command, self._power),
            "RTRV-PORT-PMON": lambda command: self._each(command, lambda port: str(self._monitor(port))),
            "SET-PORT-PMON": self._set_monitors,
            "RTRV-PORT-ATTEN": lambda command: self._each(command, lambda port: str(self.attenuation(port))),
            "SET-PORT-ATTEN": self._set_attenuators,
            "RTRV-PORT-LABEL": lambda command: self._each(command, lambda p: self._device.labels.get(p, "")),
            "ED-PORT-LABEL": self._set_labels,
        }

    def _ports(self, command: Command) -> list[int]:
        ports = list(self._matrix.ports) if command.aid.upper() == "ALL" else aid_ports(command.aid)
        for port in ports:
            self._matrix.check_port(port)
        return ports

    def _each(self, command: Command, show: Callable[[int], str]) -> Lines:
        return [f"{port}:{show(port)}" for port in self._ports(command)]

    def _set(self, act: Callable[[], object]) -> Lines:
        """Do what a set command asks, unless a fault swallows the command."""
        if not self._device.faults.take_dropped_command():
            act()
        return ()

    def _shutter(self, port: int) -> str:
        return "CLOSED" if port in self._matrix.disabled else "OPEN"

    def _set_shutters(self, command: Command, *, disabled: bool) -> Lines:
        ports = set(self._ports(command))
        return self._set(lambda: self._device.set_disabled(ports, disabled=disabled))

    def _set_flaps(self, command: Command) -> Lines:
        """Return `off ms, on ms, cycles` of the test that `OPR-PORT-FLAP` runs."""
        try:
            off_ms, on_ms, cycles = (int(text) for text in command.positional)
        except ValueError:
            raise Denied("IDNV", "three whole numbers are needed: off ms, on ms, cycles") from None
        if min(off_ms, on_ms, cycles) < 1 or cycles > _MOST_CYCLES:
            raise Denied("IDRG", f"times are from 1 ms, cycles from 1 to {_MOST_CYCLES}")
        flaps = dict.fromkeys(self._ports(command), Flap(off_ms / 1000, on_ms / 1000, cycles))
        return self._set(lambda: self._flaps.update(flaps))

    def _flap(self, command: Command) -> Lines:
        """Run the test on ports that have one; the command is complete at once (assumption)."""
        ports = self._ports(command)
        for port in ports:
            if port not in self._flaps:
                raise Denied("SNVS", f"no flap was entered for port {port}")
        return self._set(lambda: [self._device.start(self._run(port, self._flaps[port])) for port in ports])

    async def _run(self, port: int, flap: Flap) -> None:
        for _ in range(flap.cycles):
            for disabled, seconds in ((True, flap.off_s), (False, flap.on_s)):
                self._device.set_disabled({port}, disabled=disabled)
                await self._device.clock.sleep(seconds)

    def _set_labels(self, command: Command) -> Lines:
        labels = dict.fromkeys(self._ports(command), command.keyword("LABEL"))
        return self._set(lambda: self._device.labels.update(labels))

    # -- power monitors

    def _monitor(self, port: int) -> Monitor:
        return self._monitors.get(port, Monitor())

    def _power(self, port: int) -> str:
        return f"{self._device.power_dbm(port) + self._monitor(port).offset_db:.2f}"

    def _set_monitors(self, command: Command) -> Lines:
        changed = {port: self._changed_monitor(port, command) for port in self._ports(command)}
        return self._set(lambda: self._monitors.update(changed))

    def _changed_monitor(self, port: int, command: Command) -> Monitor:
        now = self._monitor(port)
        return replace(
            now,
            wavelength_nm=_number(command, "WAVE", now.wavelength_nm),
            offset_db=_number(command, "OFFSET", now.offset_db),
            averaging=int(_number(command, "AVG", now.averaging)),
        )

    # -- attenuators

    def attenuation(self, port: int) -> AttenuatorSetting:
        """Return the setting of the attenuator of an output. Raises `Denied` (IICM) for an input."""
        self._check_output(port)
        return self._settings.get(port, AttenuatorSetting())

    def _set_attenuators(self, command: Command) -> Lines:
        ports = self._ports(command)
        for port in ports:
            self._check_output(port)
        setting = self._setting(command)
        return self._set(lambda: self._attenuate(ports, setting))

    def _attenuate(self, ports: Sequence[int], setting: AttenuatorSetting) -> None:
        for port in ports:
            self._settings[port] = setting
            self._device.attenuators[port] = self._attenuator(port, setting)
        self._device.republish()

    def _setting(self, command: Command) -> AttenuatorSetting:
        mode = command.keyword("MODE").upper()
        if mode == "NONE":
            return AttenuatorSetting()
        if mode not in {"ABSOLUTE", "RELATIVE", "CONVERGED"}:
            raise Denied("IDNV", f"no attenuation mode {mode[:40]}")
        command.keyword("LEVEL")
        level, reference = _number(command, "LEVEL", 0.0), int(_number(command, "REFS", 0))
        if abs(level) > _LEVEL_RANGE_DB:
            raise Denied("IDRG", f"level {level} is out of range")
        if reference:
            self._matrix.check_port(reference)
        return AttenuatorSetting(mode, level, reference)

    def _attenuator(self, port: int, setting: AttenuatorSetting) -> Attenuator:
        """Return the attenuator in light that a setting makes: our reading of four modes that no public text defines.

        ABSOLUTE holds the output at the level; CONVERGED finds the loss for that once and keeps it;
        RELATIVE lets out the level relative to the reference port's power now, or to the unattenuated light.
        """
        if setting.mode == "NONE":
            return Attenuator()
        if setting.mode == "ABSOLUTE":
            return Attenuator(ceiling_dbm=setting.level)
        if setting.mode == "RELATIVE" and not setting.reference:
            return Attenuator(loss_db=max(0.0, -setting.level))
        wanted_dbm = setting.level
        if setting.mode == "RELATIVE":
            wanted_dbm += self._device.power_dbm(setting.reference)
        return Attenuator(loss_db=max(0.0, self._unattenuated_dbm(port) - wanted_dbm))

    def _unattenuated_dbm(self, port: int) -> float:
        self._device.attenuators.pop(port, None)
        self._device.republish()
        return self._device.power_dbm(port)

    def _check_output(self, port: int) -> None:
        if self._matrix.is_input(port):
            raise Denied("IICM", f"port {port} has no attenuator")


def _number(command: Command, name: str, default: float) -> float:
    text = command.keywords.get(name)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise Denied("IDNV", f"{name} is not a number") from None
