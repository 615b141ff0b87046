"""Chains of dense layers as one compiled function, from bytes to scores."""
