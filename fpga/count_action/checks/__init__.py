"""Checks of a datapath, from source text or from Python: errors and warnings."""
