"""Jobs that share a lab: on the same links at the same time, or one after the other."""
