"""Results of a simulated iteration, as tables and as a plot."""
