"""Several jobs on one lab, one after the other."""
