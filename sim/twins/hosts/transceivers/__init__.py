"""Optical modules of simulated NICs: their memory as the standards define it, and `ethtool -m`, which reads it."""
