"""Pure models that planner, inference and simulated devices share: light, network, clock."""
