"""Sums of products of a layer: where the fidelities differ."""
