"""Models that the planner, inference and simulated devices share: light, photonics, networks, shared links, clocks."""
