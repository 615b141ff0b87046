"""Constants of nature, exact by definition of the SI of 2019 (BIPM, The International System of Units, 9th edition).

The energy of one photon of 1550 nm, h c / wavelength, is 0.128 aJ:

>>> f"{PLANCK_J_S * LIGHT_SPEED_M_S / 1550e-9:.3e} J"
'1.282e-19 J'
"""

ELEMENTARY_CHARGE_C = 1.602176634e-19
PLANCK_J_S = 6.62607015e-34
BOLTZMANN_J_K = 1.380649e-23
LIGHT_SPEED_M_S = 299_792_458.0

ROOM_TEMPERATURE_K = 290.0
"""T0 of noise figures: H. T. Friis, "Noise figures of radio receivers", Proc. IRE 32 (1944) 419."""
