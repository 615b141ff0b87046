"""Jobs on fabrics: the simulation of one iteration, and the comparison of fabrics."""
