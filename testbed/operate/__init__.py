"""Make it so: plan, journal, apply, verify."""
