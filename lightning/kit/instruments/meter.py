"""Optical power meters."""

from __future__ import annotations

import math
from typing import Protocol

from lightning.kit.instruments.session import Identity, Session


class PowerMeter(Protocol):
    """A meter of the mean optical power at its head. All methods raise `InstrumentError`."""

    @property
    def identity(self) -> Identity:
        """The instrument's answer to `*IDN?`."""
        ...

    def read_power_w(self) -> float:
        """Return the power in W. In the dark it is noise and can be negative."""
        ...

    def read_power_dbm(self) -> float:
        """Return the power in dBm; minus infinity if the reading is not above zero."""
        ...

    def set_wavelength_nm(self, wavelength_nm: float) -> None:
        """Set the wavelength of the light, which selects the calibration of the head."""
        ...

    def set_average_count(self, count: int) -> None:
        """Set the number of readings to average."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class ThorlabsMeter:
    """A power meter with the commands of Thorlabs' PM100D, PM101, PM103 and PM400."""

    WAVELENGTH_RANGE_NM = (400.0, 1900.0)
    AVERAGE_COUNT_RANGE = (1, 10_000)

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def identity(self) -> Identity:
        """The instrument's answer to `*IDN?`."""
        return self._session.identity

    def read_power_w(self) -> float:
        """Return the power in W."""
        if self._session.ask_word("SENS:POW:UNIT?", "W", "DBM") != "W":
            self._session.send_command("SENS:POW:UNIT W")
        return self._session.ask_number("MEAS:POW?")

    def read_power_dbm(self) -> float:
        """Return the power in dBm; minus infinity if the reading is not above zero."""
        power_w = self.read_power_w()
        return 10.0 * math.log10(power_w / 1e-3) if power_w > 0.0 else -math.inf

    def set_wavelength_nm(self, wavelength_nm: float) -> None:
        """Set the wavelength of the light, 400 to 1900 nm."""
        self._session.check_range("a wavelength in nm of", wavelength_nm, *self.WAVELENGTH_RANGE_NM)
        self._session.send_command(f"SENS:CORR:WAV {wavelength_nm:.3f}")
        self._session.check_reading(
            "the wavelength in nm", wavelength_nm, self._session.ask_number("SENS:CORR:WAV?"), 0.01
        )

    def set_average_count(self, count: int) -> None:
        """Set the number of readings to average, 1 to 10,000."""
        self._session.check_range("a number of readings of", count, *self.AVERAGE_COUNT_RANGE)
        self._session.send_command(f"SENS:AVER:COUN {count}")
        self._session.check_reading(
            "the number of readings", count, self._session.ask_number("SENS:AVER:COUN?"), 0
        )

    def close(self) -> None:
        """Disconnect."""
        self._session.close()
