"""Multipliers: the sums of products of a layer, one per fidelity."""
