"""Circuits for known traffic: wavelengths on a ring, and ports of a region's circuit switch."""
