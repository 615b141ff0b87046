"""Signals of a simulated board, from the words that a generator receives to the samples in a readout's buffers."""
