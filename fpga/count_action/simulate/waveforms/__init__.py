"""Runs as waveforms: VCD files and plots."""
