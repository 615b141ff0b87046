"""The fast simulator: statements generated from a datapath and compiled to machine code."""
