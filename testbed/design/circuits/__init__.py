"""Circuits for traffic that is known: wavelengths on a ring, and ports of a region's circuit switch."""
