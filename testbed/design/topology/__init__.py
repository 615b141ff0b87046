"""Topologies: strides, rings, demands, and topologies found for them."""
