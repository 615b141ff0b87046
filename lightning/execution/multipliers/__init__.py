"""Multipliers, which compute the sums of products of a layer: one for each fidelity."""
