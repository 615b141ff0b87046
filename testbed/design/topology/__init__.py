"""Who should have light to whom: strides, rings, demands, and topologies found for them."""
