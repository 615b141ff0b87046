"""Tunable lasers."""

from __future__ import annotations

from typing import Protocol

from lightning.kit.instruments.line import SettingMismatch
from lightning.kit.instruments.session import Identity, Session


class TunableLaser(Protocol):
    """A laser with settable power and wavelength, and a switched output. All methods raise `InstrumentError`."""

    @property
    def identity(self) -> Identity:
        """The instrument's answer to `*IDN?`."""
        ...

    def turn_on(self) -> None:
        """Switch the light on, and return when it is steady."""
        ...

    def turn_off(self) -> None:
        """Switch the light off."""
        ...

    def is_on(self) -> bool:
        """Return whether the laser reports that it emits light."""
        ...

    def set_power_dbm(self, power_dbm: float) -> None:
        """Set the power and return when it is steady. Raise `OutOfRange` before sending."""
        ...

    def read_power_setpoint_dbm(self) -> float:
        """Return the power setpoint."""
        ...

    def read_output_dbm(self) -> float:
        """Return the emitted power, from the laser's own monitor."""
        ...

    def set_wavelength_nm(self, wavelength_nm: float) -> None:
        """Set the wavelength and return when it is steady. Raise `OutOfRange` before sending."""
        ...

    def read_wavelength_nm(self) -> float:
        """Return the wavelength setpoint."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class SantecLaser:
    """A laser of Santec's TSL series (550, 570, 710, 770) with the command set "legacy".

    In this set, 0 opens the shutter and 1 closes it. `*OPC?` answers 0 while the laser settles. Wavelengths are in nm.
    The driver sets the power unit to dBm before every power command.
    """

    POWER_RANGE_DBM = (-15.0, 13.0)

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def identity(self) -> Identity:
        """The instrument's answer to `*IDN?`."""
        return self._session.identity

    def turn_on(self) -> None:
        """Switch the diode on, open the shutter and wait until the output is steady.

        Raise `SettingMismatch` if the laser then reports that it is off, or reports an alarm.
        """
        self._session.send_command(":POW:STAT 1")
        self._session.send_command(":POW:SHUT 0")
        self._settle("the laser's output")
        if not self.is_on():
            raise self._make_dark_error("it reports that its output is off")
        alarm = self._session.ask(":SYST:ALER?")
        if not alarm.lower().startswith("no alert"):
            raise self._make_dark_error(f"it reports {alarm}")

    def turn_off(self) -> None:
        """Close the shutter.

        The diode stays on to keep warm. Raise `SettingMismatch` if the laser still reports light.
        """
        self._session.send_command(":POW:SHUT 1")
        self._settle("the laser's shutter")
        if self.is_on():
            raise SettingMismatch(
                "the shutter was closed, but the laser reports that it is on",
                device=self._session.resource,
                hint="Switch it off at its front panel before you open the light path",
            )

    def is_on(self) -> bool:
        """Return whether the laser reports that the diode is on and the shutter open."""
        return self._session.ask_bool(":POW:STAT?") and not self._session.ask_bool(":POW:SHUT?")

    def set_power_dbm(self, power_dbm: float) -> None:
        """Set the power, -15 to 13 dBm, and return when it is steady."""
        self._session.check_range("a power in dBm of", power_dbm, *self.POWER_RANGE_DBM)
        self._use_dbm()
        self._session.send_command(f":POW {power_dbm:.2f}")
        self._settle("the laser's power")
        self._session.check_reading("the power in dBm", power_dbm, self.read_power_setpoint_dbm(), 0.006)

    def read_power_setpoint_dbm(self) -> float:
        """Return the power setpoint."""
        self._use_dbm()
        return self._session.ask_number(":POW?")

    def read_output_dbm(self) -> float:
        """Return the emitted power, from the laser's own monitor."""
        self._use_dbm()
        return self._session.ask_number(":POW:ACT?")

    def read_wavelength_range_nm(self) -> tuple[float, float]:
        """Return the ends of the laser's tuning range."""
        return self._session.ask_number(":WAV:MIN?"), self._session.ask_number(":WAV:MAX?")

    def set_wavelength_nm(self, wavelength_nm: float) -> None:
        """Set the wavelength, with a resolution of 0.1 pm, and return when it is steady."""
        self._session.check_range("a wavelength in nm of", wavelength_nm, *self.read_wavelength_range_nm())
        self._session.send_command(f":WAV {wavelength_nm:.4f}")
        self._settle("the laser's wavelength")
        self._session.check_reading("the wavelength in nm", wavelength_nm, self.read_wavelength_nm(), 0.0005)

    def read_wavelength_nm(self) -> float:
        """Return the wavelength setpoint."""
        return self._session.ask_number(":WAV?")

    def close(self) -> None:
        """Disconnect."""
        self._session.close()

    def _settle(self, subject: str) -> None:
        self._session.wait_until(lambda: self._session.ask_bool("*OPC?"), subject)

    def _use_dbm(self) -> None:
        """Set the power unit to dBm, because someone may have chosen mW at the front panel."""
        if self._session.ask_bool(":POW:UNIT?"):
            self._session.send_command(":POW:UNIT 0")

    def _make_dark_error(self, reason: str) -> SettingMismatch:
        return SettingMismatch(
            f"the laser was switched on and gives no light: {reason}",
            device=self._session.resource,
            hint="Check the key, the interlock and the remote interlock plug at its back",
        )
