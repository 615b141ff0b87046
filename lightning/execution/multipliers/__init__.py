"""Sums of products of a layer: where the fidelities differ. `weights` and `readouts` order what kernels read."""
