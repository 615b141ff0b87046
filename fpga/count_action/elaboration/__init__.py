"""Elaboration: from syntax trees to the datapath model, with every number, range and name resolved."""
