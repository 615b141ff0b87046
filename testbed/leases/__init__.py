"""Leases: who may move which part of a lab, and until when."""
