"""The light source: constant power with intensity and phase noise."""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.photonics import checks
from sim.models.photonics.constants import LIGHT_SPEED_M_S, PLANCK_J_S


@dataclass(frozen=True, slots=True)
class Laser:
    """A tunable laser. Raise ValueError for an impossible power, wavelength, linewidth or noise density."""

    power_w: float = 10e-3
    """Power in the fibre when the laser is on."""
    wavelength_m: float = 1550e-9
    rin_db_hz: float = -140.0
    """One-sided density of relative intensity noise beyond shot noise ("excess RIN"), white over the band."""
    linewidth_hz: float = 100e3
    """Full width at half maximum of a Lorentzian line."""

    def __post_init__(self) -> None:
        checks.check_not_negative(power_w=self.power_w, linewidth_hz=self.linewidth_hz)
        checks.check_positive(wavelength_m=self.wavelength_m)
        checks.check_within(-250.0, 0.0, rin_db_hz=self.rin_db_hz)

    @property
    def frequency_hz(self) -> float:
        """Optical frequency, c / wavelength.

        >>> f"{Laser().frequency_hz / 1e12:.2f} THz"
        '193.41 THz'
        """
        return LIGHT_SPEED_M_S / self.wavelength_m


def compute_photon_energy_j(wavelength_m: float) -> float:
    """Return the energy of a photon, h c / wavelength (Planck, Einstein).

    40 aJ at 1550 nm, the energy per multiplication claimed for photonics, are 312 photons:

    >>> f"{40e-18 / compute_photon_energy_j(1550e-9):.0f}"
    '312'
    """
    return PLANCK_J_S * LIGHT_SPEED_M_S / wavelength_m
