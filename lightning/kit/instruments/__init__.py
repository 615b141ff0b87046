"""Laboratory instruments around the photonic kit, by PyVISA: tunable laser, bias supply, optical power meter.

    line      lines of text over PyVISA, with a deadline for every wait; the errors
    session   one connection: identity, error queue, verified settings
    laser     `TunableLaser`, and Santec's TSL series
    supply    `BiasSupply`, and Keysight's N6700 family
    meter     `PowerMeter`, and Thorlabs' meters
    bench     instruments by role and address

PyVISA is imported when an instrument is opened.
"""

from lightning.kit.instruments.bench import Instruments, open_bench, open_instrument
from lightning.kit.instruments.laser import TunableLaser
from lightning.kit.instruments.meter import PowerMeter
from lightning.kit.instruments.supply import BiasSupply

__all__ = ["BiasSupply", "Instruments", "PowerMeter", "TunableLaser", "open_bench", "open_instrument"]
