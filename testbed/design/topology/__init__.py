"""Topologies: strides, rings, demands, and the search for a topology that suits a demand."""
