"""Elaboration: from syntax trees to the one representation, with every number, range and name resolved."""
