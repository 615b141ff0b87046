"""Circuits for known traffic: wavelengths on a ring, ports of a region's circuit switch, and shots of a switch."""
