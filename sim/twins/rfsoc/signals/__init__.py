"""Signals of a simulated board, from a generator's waveforms to the samples of a readout's buffers."""
