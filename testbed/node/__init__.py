"""Programs that are copied to the hosts and run there: standard library (and torch) only."""
