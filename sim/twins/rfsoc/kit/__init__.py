"""The photonic kit: light between the generators and the readouts of the RFSoC twin.

    parameters   parameters of the kit, with units
    knobs        the same parameters by name, to read and set
    state        the current state, which the laboratory instruments share
    optics       from the signals of four generators, with delays and drift, to the power on the detector
    receiver     from the power on the detector to level and noise at the converter
    plant        the whole kit as a plant of the board, made from the options of an address

The level is offset + K T1 T2 + K (T3 T4 + crosstalk), with transmissions T1 to T4 of the modulators. If one pair of
modulators is open and the other dark, the level is 0.02 + 0.94 of full scale. The sum of two full products is clipped
at 1.
"""

from sim.twins.rfsoc.kit.knobs import KNOBS, KitKnobs, UnknownKnob
from sim.twins.rfsoc.kit.parameters import KitParameters
from sim.twins.rfsoc.kit.plant import KIT_OPTIONS, PhotonicKit, make_kit

__all__ = ["KIT_OPTIONS", "KNOBS", "KitKnobs", "KitParameters", "PhotonicKit", "UnknownKnob", "make_kit"]
