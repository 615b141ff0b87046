"""Fabrics that a job can be simulated on, by name."""

FABRICS = ("ideal", "fattree", "oversub", "direct", "expander", "circuits", "circuits-forwarding")
SWITCHED = frozenset({"ideal", "fattree", "oversub"})
"""Fabrics of packet switches: a host has one link, and nobody forwards for others."""
