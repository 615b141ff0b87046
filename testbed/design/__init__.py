"""What should be: topologies, wirings, routes, rings and what they ought to reach. Pure; no lab is touched."""
