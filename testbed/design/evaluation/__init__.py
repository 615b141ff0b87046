"""Jobs on fabrics: one iteration simulated, and fabrics compared."""
