"""Leases: the right of an operator to change parts of a lab for a limited time."""
