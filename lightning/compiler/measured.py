"""Figures measured on the prototype."""

MEASURED_SIGMA = 1.6569279459762971
"""Noise of a readout, of 255: measured on Lightning's prototype, as its artifact states."""
