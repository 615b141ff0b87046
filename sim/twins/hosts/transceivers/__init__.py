"""Optical modules of simulated NICs: their memory as standards define it, and the command `ethtool -m`."""
