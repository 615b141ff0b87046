"""Describe an optical testbed, patch it, prove it, measure on it, and keep every measurement."""
