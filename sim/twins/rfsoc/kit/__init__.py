"""The photonic kit: light between the generators and the readouts of the RFSoC twin.

    parameters   what it is made of, in numbers with units
    knobs        the same by name, to be turned
    state        the present state, shared with the laboratory instruments
    optics       from four generators, with delays and drift, to the power on the detector
    receiver     from that power to level and noise at the converter
    plant        all of it, as the board sees it, from the options of an address

With one pair of modulators open and the other dark, the level is offset + K T1 T2 + K (T3 T4 + crosstalk): 0.02 + 0.94
of full scale at the most. Two full products together are clipped at 1.
"""

from sim.twins.rfsoc.kit.knobs import KNOBS, KitKnobs, UnknownKnob
from sim.twins.rfsoc.kit.parameters import KitParameters
from sim.twins.rfsoc.kit.plant import KIT_OPTIONS, PhotonicKit, photonic_kit

__all__ = ["KIT_OPTIONS", "KNOBS", "KitKnobs", "KitParameters", "PhotonicKit", "UnknownKnob", "photonic_kit"]
