"""Laboratory instruments around a simulated photonic kit: laser, bias supply and optical power meter, on TCP sockets.

instrument   what they have in common: numbers, refusals, the time that settling takes
laser        a tunable laser, in the words of Santec's TSL series
supply       a supply of four bias voltages, in Keysight's words
meter        an optical power meter, in Thorlabs' words
bench        the three on their sockets, in a thread of their own
"""

from sim.twins.rfsoc.kit.bench.bench import Bench

__all__ = ["Bench"]
