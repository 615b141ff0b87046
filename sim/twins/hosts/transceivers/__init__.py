"""Optical modules of simulated NICs: their memory by the standards, and `ethtool -m`, which reads it."""
