"""Several jobs on one lab: on the same links at once, or one after another."""
