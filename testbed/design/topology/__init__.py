"""Topologies: strides, rings, demands, and the search for a topology for a demand."""
