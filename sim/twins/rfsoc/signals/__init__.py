"""Signals of a simulated board, from the words of a generator to the samples in a readout's buffers."""
