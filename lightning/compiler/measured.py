"""Figures measured on the prototype."""

MEASURED_SIGMA = 1.6569279459762971
"""Noise of a readout in units of 1/255, measured on Lightning's prototype. Source: its artifact."""
