"""Published figures, measured or claimed, with sources: presets of photonic systems, and digital hardware.

>>> [part.name for part in PRESETS["prototype"].parts]
['digital computer', 'waveform generator', 'modulators', 'digitiser']

Each part of a preset has an energy per operation, or a power. For digital hardware, the assumptions matter more than
the physics, so they are always shown with the figure.

>>> [f"{each.joules_per_mac * 1e12:.2f} pJ" for each in BASELINES]
['25.65 pJ', '0.80 pJ', '5.21 pJ', '0.92 pJ']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

TALK_SOURCE = "Lightning's talk, table of the prototype's powers"
SIMPHONY_SOURCE = "SimPhony (ScopeX, DAC 2025), library of devices"
HOROWITZ_SOURCE = "M. Horowitz, Computing's energy problem, ISSCC 2014, figure 1.1.9 (45 nm, 0.9 V)"
LIGHTNING_SOURCE = "Lightning (SIGCOMM 2023) artifact, simulation/models.py"
_PREFIXES = tuple(
    (10.0 ** (-3 * step), prefix) for step, prefix in enumerate(("", "m", "u", "n", "p", "f", "a", "z"))
)
PartGroup = Literal["converters", "optics", "receiver", "digital", "memory"]
Count = Literal[
    "seconds",
    "core_seconds",
    "wavelength_seconds",
    "dac_samples",
    "adc_samples",
    "additions",
    "digital_macs",
    "memory_bytes",
]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its unit and its source."""

    value: float
    unit: str
    source: str
    assumed: str = ""
    """Assumption of this use of the source; empty for none."""


def format_joules(value: float) -> str:
    """Format an energy with an SI prefix.

    >>> format_joules(1.5e-12), format_joules(0.0)
    ('1.5 pJ', '0 J')
    """
    for factor, prefix in _PREFIXES:
        if value >= factor:
            return f"{value / factor:.3g} {prefix}J"
    return "0 J" if value == 0 else f"{value:.3g} J"


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of part, with its energy in J for each unit of `work_kind`. For seconds, this is the power in W."""

    name: str
    group: PartGroup
    unit_energy: Figure
    work_kind: Count


@dataclass(frozen=True, slots=True)
class Preset:
    """The parts of a system. `omitted_parts` names the parts that are not included."""

    name: str
    title: str
    parts: tuple[Part, ...]
    omitted_parts: str


def compute_laser_power_w(
    received_power_w: float, modulator_count: int, insertion_loss_db: float, efficiency: float
) -> float:
    """Return the electrical power of a laser that puts `received_power_w` on the detector through modulators in series.

    `efficiency` is the wall-plug efficiency of the laser, above 0 and up to 1. By hand: 1 mW behind two modulators of
    3 dB each needs 3.98 mW of light, and at 20 % efficiency 19.9 mW.

    >>> round(compute_laser_power_w(1e-3, 2, 3.0, 0.2) * 1e3, 2)
    19.91
    """
    return float(received_power_w * 10.0 ** (modulator_count * insertion_loss_db / 10.0) / efficiency)


PROTOTYPE = Preset(
    "prototype",
    "the prototype of the talk: instruments on a bench",
    (
        Part("digital computer", "digital", Figure(250.0, "W", TALK_SOURCE), "seconds"),
        Part("waveform generator", "converters", Figure(220.0, "W", TALK_SOURCE), "seconds"),
        Part("modulators", "optics", Figure(0.001, "W", TALK_SOURCE), "seconds"),
        Part("digitiser", "converters", Figure(1350.0, "W", TALK_SOURCE), "seconds"),
    ),
    "The table has no laser and no receiver; instruments draw their power whatever the clock.",
)

CHIP = Preset(
    "chip",
    "parts of a chip, as published for each",
    (
        Part(
            "laser",
            "optics",
            Figure(
                compute_laser_power_w(1e-3, 2, 3.0, 0.2),
                "W",
                SIMPHONY_SOURCE,
                "1 mW on the detector at full light, two modulators of 3 dB, wall-plug efficiency 0.2",
            ),
            "wavelength_seconds",
        ),
        Part(
            "modulators",
            "optics",
            Figure(450e-15, "J", SIMPHONY_SOURCE, "450 fJ a bit, taken as 450 fJ for each sample of 8 bits"),
            "dac_samples",
        ),
        Part(
            "digital-to-analogue converters",
            "converters",
            Figure(
                50e-3 / 14e9, "J", SIMPHONY_SOURCE, "8 bits, 50 mW at 14 GS/s: 3.6 pJ a sample at any rate"
            ),
            "dac_samples",
        ),
        Part(
            "receiver",
            "receiver",
            Figure(3e-3, "W", SIMPHONY_SOURCE, "one transimpedance amplifier a core"),
            "core_seconds",
        ),
        Part(
            "analogue-to-digital converters",
            "converters",
            Figure(
                14.8e-3 / 10e9,
                "J",
                SIMPHONY_SOURCE,
                "8 bits, 14.8 mW at 10 GS/s: 1.5 pJ a sample at any rate",
            ),
            "adc_samples",
        ),
        Part(
            "additions",
            "digital",
            Figure(0.1e-12, "J", HOROWITZ_SOURCE, "one addition of 32 bits a readout"),
            "additions",
        ),
        Part(
            "digital multiply-accumulates",
            "digital",
            Figure(0.3e-12, "J", HOROWITZ_SOURCE, "8-bit multiplication 0.2 pJ, 32-bit addition 0.1 pJ"),
            "digital_macs",
        ),
        Part(
            "memory",
            "memory",
            Figure(
                100e-12 / 8,
                "J",
                HOROWITZ_SOURCE,
                "a byte of weight and one of activation a product, from 1 MB of SRAM",
            ),
            "memory_bytes",
        ),
    ),
    "Network interface, clock distribution, leakage, cooling, and temperature control of the optics.",
)

PRESETS: Mapping[str, Preset] = MappingProxyType({"prototype": PROTOTYPE, "chip": CHIP})


@dataclass(frozen=True, slots=True)
class Baseline:
    """Energy of a multiply-accumulate on digital hardware, with the assumption behind it."""

    name: str
    power_w: float
    macs_per_s: float
    assumption: str
    source: str

    @property
    def joules_per_mac(self) -> float:
        """Energy of one multiply-accumulate: power over rate."""
        return self.power_w / self.macs_per_s


BASELINES = (
    Baseline(
        "A100, CUDA cores",
        250.0,
        6912 * 1.41e9,
        "one multiply-accumulate a CUDA core and cycle, all cores busy, tensor cores idle",
        LIGHTNING_SOURCE,
    ),
    Baseline(
        "A100, tensor cores, int8",
        250.0,
        624e12 / 2,
        "624 TOPS of int8, all of them busy; from memory, not verified",
        "data sheet of the A100",
    ),
    Baseline(
        "Brainwave",
        125.0,
        96_000 * 0.25e9,
        "96,000 multipliers at 250 MHz, all of them busy",
        LIGHTNING_SOURCE,
    ),
    Baseline(
        "Lightning's chip, as claimed",
        91.875,
        1024 * 97e9,
        "1,024 cores at 97 GHz, all of them busy; synthesis and extrapolation, never built",
        LIGHTNING_SOURCE,
    ),
)
"""Digital hardware. The first two entries rate the same device in two ways, which differ by a factor of 32."""
